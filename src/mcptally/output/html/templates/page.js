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
  for (const visible of document.querySelectorAll(".rest")) addCopyButtons(visible);

  // The calls and commands of a row open in a row of their own below it; sorting and filtering
  // close it. A call is on the page once: the row gets a copy.
  const addCalls = (content) => {
    for (const link of content.querySelectorAll("a.to")) {
      const original = document.getElementById(link.hash.slice(1));
      if (!original || link.copied) continue;
      const copied = original.cloneNode(true);
      copied.removeAttribute("id");
      link.parentNode.after(copied);
      link.copied = copied;
    }
  };
  const removeCalls = (content) => {
    for (const link of content.querySelectorAll("a.to")) {
      link.copied?.remove();
      link.copied = null;
    }
  };
  const unfold = (details) => {
    const content = details.querySelector(".behind");
    if (!content) return;
    addCalls(content);
    const cell = details.parentNode;
    if (cell.tagName !== "TD") return;
    const below = make("tr", "", "below");
    const wide = make("td");
    wide.colSpan = cell.parentNode.cells.length;
    wide.append(content);
    below.append(wide);
    details.below = below;
    cell.parentNode.classList.add("open");
    cell.parentNode.after(below);
  };
  const fold = (details) => {
    const content = details.below ? details.below.firstChild.firstChild : details.querySelector(".behind");
    if (!content) return;
    removeCalls(content);
    if (!details.below) return;
    details.append(content);
    details.below.remove();
    details.parentNode.parentNode.classList.remove("open");
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
  const texts = new Intl.Collator("en");
  const compare = (a, b) => {
    if (a === b) return 0;
    const x = Number(a), y = Number(b);
    return Number.isNaN(x) || Number.isNaN(y) ? texts.compare(a, b) : x - y;
  };
  const isNumeric = (table, head) => head.dataset.sort === "low"
    || (table.tBodies[0].rows[0]?.cells[head.cellIndex].classList.contains("n") ?? false);
  const sort = (table, head, descending) => {
    foldAll(table);
    const column = head.cellIndex;
    const body = table.tBodies[0];
    const rows = [...body.rows];
    if (descending === undefined) {
      const now = head.getAttribute("aria-sort");
      descending = now ? now === "ascending" : isNumeric(table, head);
    }
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
      button.addEventListener("click", () => { sort(table, head); remember(); });
    }
    if (table.classList.contains("long") && table.tBodies[0].rows.length > FIRST) {
      table.classList.add("short");
      table.allButton = make("button", "", "all");
      table.allButton.type = "button";
      table.allButton.addEventListener("click", () => { foldAll(table); table.classList.toggle("short"); shorten(table); remember(); });
      table.cutNote = make("p", "", "small cut");
      table.parentNode.after(table.allButton, table.cutNote);
    }
    shorten(table);
  }

  const filters = (form) => form.querySelectorAll("input, select");
  const setFilter = (field, text) => {
    if (field.type === "checkbox") field.checked = text === "1"; else field.value = text;
  };
  const getFilter = (field) => field.type === "checkbox" ? (field.checked ? "1" : "") : field.value;
  const filter = (form) => {
    const table = document.getElementById(form.dataset.for);
    foldAll(table);
    const words = form.querySelector("input[type=search]").value.toLowerCase().split(/\s+/).filter(Boolean);
    const flags = [...form.querySelectorAll("input[data-flag]:checked")].map((box) => box.dataset.flag);
    const chosen = [...form.querySelectorAll("select")].filter((one) => one.value);
    const total = table.tBodies[0].rows.length;
    for (const row of table.tBodies[0].rows) {
      row.words ??= row.textContent.toLowerCase();
      row.hidden = !(words.every((word) => row.words.includes(word))
        && flags.every((flag) => (row.dataset.f ?? "").split(" ").includes(flag))
        && chosen.every((one) => one.value === (one.dataset.column === "server" ? row.cells[0].dataset.server : row.dataset[one.dataset.column])));
    }
    const shown = shorten(table);
    form.querySelector("output").textContent = shown === total ? "" : `${shown.toLocaleString("en")} of ${total.toLocaleString("en")}`;
  };
  const forms = [...document.querySelectorAll("form.filters")];
  for (const form of forms) {
    form.addEventListener("input", () => { filter(form); remember(); });
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = false;
  }

  // The address holds what the reader chose: #ANCHOR?TABLE.sort=-calls&TABLE.search=git&TABLE.all=1
  const nameOf = (field) => field.dataset.flag ?? field.dataset.column ?? "search";
  const chosen = () => {
    const state = new URLSearchParams();
    for (const table of document.querySelectorAll("table.sortable")) {
      const key = table.id.replace("t-", "");
      const head = table.tHead.querySelector("[aria-sort]");
      if (head) state.set(`${key}.sort`, (head.getAttribute("aria-sort") === "descending" ? "-" : "") + head.textContent.trim());
      if (table.allButton && !table.classList.contains("short")) state.set(`${key}.all`, "1");
    }
    for (const form of forms) {
      for (const field of filters(form)) {
        if (getFilter(field)) state.set(`${form.dataset.for.replace("t-", "")}.${nameOf(field)}`, getFilter(field));
      }
    }
    return String(state);
  };
  const parts = () => {
    const [anchor, ...rest] = location.hash.slice(1).split("?");
    return [anchor, rest.join("?")];
  };
  const remember = () => {
    const state = chosen();
    const hash = parts()[0] + (state ? `?${state}` : "");
    history.replaceState(null, "", hash || location.hash ? `#${hash}` : location.href);
  };
  const restore = (text) => {
    const state = new URLSearchParams(text);
    for (const form of forms) {
      for (const field of filters(form)) setFilter(field, state.get(`${form.dataset.for.replace("t-", "")}.${nameOf(field)}`) ?? "");
      filter(form);
    }
    for (const table of document.querySelectorAll("table.sortable")) {
      const key = table.id.replace("t-", "");
      const by = state.get(`${key}.sort`) ?? "";
      const head = [...table.tHead.rows[0].cells].find((one) => one.dataset.sort !== "none" && one.textContent.trim() === by.replace(/^-/, ""));
      if (head) sort(table, head, by.startsWith("-"));
      if (table.allButton) { table.classList.toggle("short", state.get(`${key}.all`) !== "1"); shorten(table); }
    }
  };
  // What an address names is made visible: a folded call, or a row that the table does not show.
  const reveal = (anchor) => {
    const target = anchor && document.getElementById(anchor);
    if (!target) return;
    for (let one = target.parentElement; one; one = one.parentElement) {
      if (one.tagName === "DETAILS") one.open = true;
      // A section that is not drawn keeps its old height, so the browser could not scroll to a row that appears.
      one.style.contentVisibility = "visible";
    }
    const table = target.tagName === "TR" && target.closest("table");
    if (table && target.hidden) {
      const form = forms.find((one) => one.dataset.for === table.id);
      for (const field of filters(form)) setFilter(field, "");
      filter(form);
    }
    if (table && target.classList.contains("over")) { table.classList.remove("short"); shorten(table); }
    for (const old of document.querySelectorAll(".target")) old.classList.remove("target");
    target.classList.add("target");
    target.scrollIntoView();
  };
  const arrive = () => {
    const [anchor, state] = parts();
    if (state && state !== chosen()) restore(state);
    reveal(anchor);
    remember();
  };
  addEventListener("hashchange", arrive);
  if (location.hash) arrive();

  // All details are open in print.
  let opened = [];
  addEventListener("beforeprint", () => {
    printing = true;
    for (const table of document.querySelectorAll("table")) foldAll(table);
    opened = [...document.querySelectorAll("main details:not([open])")].filter((one) => !one.closest("details.call, #calls"));
    for (const one of opened) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of opened) one.open = false;
    printing = false;
  });
})();
