"use strict";
// The switches of the page, and tables that are sorted by a click. Labels are only ever set as text.
(() => {
  const all = (what, within = document) => [...within.querySelectorAll(what)];
  const switches = document.getElementById("switches");
  const off = new Set(); // the keys of policies that are not shown

  // Policies: switched on and off in all plots and tables at once.
  function showPolicies() {
    for (const part of all("[data-policy]")) part.classList.toggle("off", off.has(part.dataset.policy));
    for (const box of all("input[name=policy]", switches)) box.checked = !off.has(box.value);
  }
  function setPolicy(key, shown) {
    if (shown) off.delete(key); else off.add(key);
    showPolicies();
  }

  // Scales and kinds of regret: of the plots that show the same thing, only the chosen one.
  function showChoices() {
    const scale = switches.elements.scale.value;
    const kind = switches.elements.kind.value;
    for (const part of all("[data-scale], [data-kind]")) {
      const other = (part.dataset.scale && part.dataset.scale !== scale)
        || (part.dataset.kind && part.dataset.kind !== kind);
      part.classList.toggle("choice-off", Boolean(other));
    }
  }

  // Tables: a click on a heading sorts by its column, a second click turns the order round.
  function sortable(table) {
    const heads = all("thead th", table);
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const one of heads) one.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const body = table.tBodies[0];
        const rows = [...body.rows].sort((a, b) => compare(a.cells[column], b.cells[column], down ? -1 : 1));
        body.append(...rows);
      });
    });
  }
  function compare(a, b, sign) {
    const [one, two] = [a.dataset.value, b.dataset.value];
    if (one === undefined || two === undefined) return sign * a.textContent.localeCompare(b.textContent);
    if (one === "" || two === "") return (one === "") - (two === ""); // what is not known stays last
    return sign * (Number(one) - Number(two));
  }

  switches.hidden = false;
  switches.addEventListener("change", (event) => {
    if (event.target.name === "policy") setPolicy(event.target.value, event.target.checked);
    else showChoices();
  });
  document.getElementById("all").addEventListener("click", () => { off.clear(); showPolicies(); });
  document.getElementById("none").addEventListener("click", () => {
    for (const box of all("input[name=policy]", switches)) off.add(box.value);
    showPolicies();
  });
  switches.addEventListener("submit", (event) => event.preventDefault());
  all("table.sortable").forEach(sortable);
  showChoices();
})();
