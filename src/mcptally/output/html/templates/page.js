"use strict";
(() => {
  const root = document.documentElement;
  const make = (tag, text, className) => {
    const element = document.createElement(tag);
    if (text) element.textContent = text;
    if (className) element.className = className;
    return element;
  };

  // The theme follows the system until the reader switches it.
  const theme = document.getElementById("theme");
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
  const label = () => { theme.textContent = dark() ? "Light" : "Dark"; theme.setAttribute("aria-label", `Switch to the ${dark() ? "light" : "dark"} theme`); };
  theme.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; label(); });
  system.addEventListener("change", label);
  theme.hidden = false;
  label();

  // Each command gets a copy button when it becomes visible.
  const copy = async (code, button) => {
    const text = code.textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      if (!document.execCommand("copy")) { button.textContent = "Selected"; return; }
    }
    button.textContent = "Copied";
  };
  const addCopyButtons = (within) => {
    for (const code of within.querySelectorAll("code.cmd")) {
      if (code.parentNode.className === "line") continue;
      const line = make("div", "", "line");
      const button = make("button", "Copy", "copy");
      button.type = "button";
      button.setAttribute("aria-label", "Copy this command");
      button.addEventListener("click", () => {
        copy(code, button).then(() => setTimeout(() => { button.textContent = "Copy"; }, 2000));
      });
      code.replaceWith(line);
      line.append(code, button);
    }
  };
  for (const visible of document.querySelectorAll(".priorities, .rest")) addCopyButtons(visible);
  // The commands of a row open in a row of their own below it; sorting and filtering close it.
  const unfold = (details) => {
    const content = details.querySelector(".commands");
    const cell = details.parentNode;
    if (cell.tagName !== "TD" || !content) return;
    const below = make("tr", "", "below");
    const wide = make("td");
    wide.colSpan = cell.parentNode.cells.length;
    wide.append(content);
    below.append(wide);
    details.below = below;
    cell.parentNode.after(below);
  };
  const fold = (details) => {
    if (!details.below) return;
    details.append(details.below.firstChild.firstChild);
    details.below.remove();
    details.below = null;
  };
  const foldAll = (table) => {
    for (const details of table.querySelectorAll("td > details[open]")) {
      fold(details);
      details.open = false;
    }
  };
  let printing = false;
  document.addEventListener("toggle", (event) => {
    const details = event.target;
    if (!details.open) { fold(details); return; }
    addCopyButtons(details);
    if (!printing) unfold(details);
  }, true);

  // Long tables show their first rows only, in the current order and filter.
  const FIRST = 25;
  const shorten = (table) => {
    let count = 0;
    for (const row of table.tBodies[0].rows) {
      if (!row.hidden) count += 1;
      row.classList.toggle("over", count > FIRST);
    }
    const button = table.allButton;
    if (button) {
      button.hidden = count <= FIRST;
      const short = count > FIRST && table.classList.contains("short");
      table.cutNote.textContent = short ? `The first ${FIRST} of ${count.toLocaleString("en")} rows are shown.` : "";
      button.textContent = table.classList.contains("short") ? `Show all ${count.toLocaleString("en")} rows` : `Show only the first ${FIRST} rows`;
    }
    return count;
  };

  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.v ?? cell.textContent.trim();
  };
  const compare = (a, b) => {
    if (a === b) return 0;
    const x = Number(a), y = Number(b);
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, "en") : x - y;
  };
  const sort = (table, head) => {
    foldAll(table);
    const column = head.cellIndex;
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const numeric = rows.some((row) => row.cells[column].classList.contains("n") || head.dataset.sort === "low");
    const now = head.getAttribute("aria-sort");
    const descending = now ? now === "ascending" : numeric;
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const keyed = rows.map((row) => [value(row, column), row]);
    // Rows without a value stay at the end in both directions.
    keyed.sort(([a], [b]) => (a === "") - (b === "") || (descending ? compare(b, a) : compare(a, b)));
    body.append(...keyed.map(([, row]) => row));
    shorten(table);
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    for (const head of table.tHead.rows[0].cells) {
      if (head.dataset.sort === "none") continue;
      const button = make("button", head.firstChild.textContent);
      button.type = "button";
      head.firstChild.replaceWith(button);
      button.addEventListener("click", () => sort(table, head));
    }
    if (table.classList.contains("long") && table.tBodies[0].rows.length > FIRST) {
      table.classList.add("short");
      table.allButton = make("button", "", "all");
      table.allButton.type = "button";
      table.allButton.addEventListener("click", () => { foldAll(table); table.classList.toggle("short"); shorten(table); });
      table.cutNote = make("p", "", "small cut");
      table.parentNode.after(table.allButton, table.cutNote);
    }
    shorten(table);
  }

  for (const form of document.querySelectorAll("form.filters")) {
    const table = document.getElementById(form.dataset.for);
    const search = form.querySelector("input[type=search]");
    const filter = () => {
      foldAll(table);
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const flags = [...form.querySelectorAll("input[data-flag]:checked")].map((box) => box.dataset.flag);
      const chosen = [...form.querySelectorAll("select")].filter((one) => one.value);
      const total = table.tBodies[0].rows.length;
      for (const row of table.tBodies[0].rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !(words.every((word) => text.includes(word))
          && flags.every((flag) => (row.dataset.f ?? "").split(" ").includes(flag))
          && chosen.every((one) => one.value === (one.dataset.column === "server" ? row.cells[0].dataset.server : row.dataset[one.dataset.column])));
      }
      const shown = shorten(table);
      form.querySelector("output").textContent = shown === total ? "" : `${shown.toLocaleString("en")} of ${total.toLocaleString("en")}`;
    };
    form.addEventListener("input", filter);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = false;
  }

  // All details are open in print.
  let opened = [];
  addEventListener("beforeprint", () => {
    printing = true;
    for (const table of document.querySelectorAll("table")) foldAll(table);
    opened = [...document.querySelectorAll("main details:not([open])")];
    for (const one of opened) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of opened) one.open = false;
    printing = false;
  });
})();
