"use strict";
(() => {
  const root = document.documentElement;
  const kept = (() => { try { return localStorage; } catch { return null; } })();
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  // Before the first paint: the theme that the reader chose on another page.
  const chosen = kept?.getItem("theme");
  if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;

  // Keys work while the page still arrives.
  const rows = () => [...document.querySelectorAll(".row")].filter((row) => row.offsetParent !== null);
  const at = () => document.querySelector(".row.at");
  const move = (step) => {
    const all = rows();
    if (!all.length) return;
    const next = all[Math.min(all.length - 1, Math.max(0, all.indexOf(at()) + step))] ?? all[0];
    at()?.classList.remove("at");
    next.classList.add("at");
    next.scrollIntoView({ block: "nearest" });
    next.querySelector("a, summary")?.focus({ preventScroll: true });
  };
  const follow = (selector) => document.querySelector(selector)?.click();
  const keys = {
    "/": () => document.getElementById("q").focus(),
    j: () => move(1),
    k: () => move(-1),
    o: () => at()?.querySelector("a, summary")?.click(),
    u: () => [...document.querySelectorAll(".crumbs a")].at(-1)?.click(),
    "[": () => follow("a[rel=prev]"),
    "]": () => follow("a[rel=next]"),
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input:not([type=checkbox]), textarea, select")) {
      const isReason = event.target.closest(".review") && event.key === "Enter";
      if (isReason) event.preventDefault(); // the first button of the form is an answer
      if (event.key === "Escape" || isReason) event.target.blur();
      return;
    }
    const asked = [...document.querySelectorAll(".review [data-key]")].find((one) => one.dataset.key === event.key);
    if (asked) {
      event.preventDefault();
      if (asked.type === "text") asked.focus();
      else asked.click();
      return;
    }
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });

  const texts = new Intl.Collator("en");
  const compare = (a, b) => {
    const x = Number(a), y = Number(b);
    return Number.isNaN(x) || Number.isNaN(y) ? texts.compare(a, b) : x - y;
  };
  const sort = (table, head) => {
    const column = head.cellIndex;
    const body = table.tBodies[0];
    const value = (row) => row.cells[column].dataset.v ?? row.cells[column].textContent.trim().replaceAll(",", "");
    const before = head.getAttribute("aria-sort");
    const descending = before ? before === "ascending" : head.classList.contains("n");
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const keyed = [...body.rows].map((row) => [value(row), row]);
    // Rows without a value stay at the end in both directions.
    keyed.sort(([a], [b]) => (a === "") - (b === "") || (descending ? compare(b, a) : compare(a, b)));
    body.append(...keyed.map(([, row]) => row));
  };

  const copy = async (code, button) => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      const range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  };

  const button = (text, className, act) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.className = className;
    made.addEventListener("click", () => act(made));
    return made;
  };

  addEventListener("DOMContentLoaded", () => {
    const theme = document.getElementById("theme");
    const label = () => {
      theme.textContent = dark() ? "Light" : "Dark";
      theme.setAttribute("aria-label", `Switch to the ${dark() ? "light" : "dark"} theme`);
    };
    theme.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      kept?.setItem("theme", root.dataset.theme);
      label();
    });
    system.addEventListener("change", label);
    theme.hidden = false;
    label();

    for (const table of document.querySelectorAll("table.sortable")) {
      for (const head of table.tHead.rows[0].cells) {
        if (head.dataset.sort === "none") continue;
        head.firstChild.replaceWith(button(head.firstChild.textContent, "", () => sort(table, head)));
      }
    }
    for (const code of document.querySelectorAll("code.cmd")) {
      const line = document.createElement("div");
      line.className = "line";
      code.replaceWith(line);
      line.append(code, button("Copy", "copy", (one) => copy(code, one)));
    }
    for (const tree of document.querySelectorAll(".tree")) {
      const fold = (open) => () => {
        for (const node of tree.querySelectorAll("details")) node.open = open;
      };
      const line = document.createElement("p");
      line.className = "fold";
      line.append(button("Unfold all", "copy", fold(true)), " ", button("Fold all", "copy", fold(false)));
      tree.before(line);
    }
    // The page was not whole when the browser looked for the place that the address names.
    if (location.hash) document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
  });
})();
