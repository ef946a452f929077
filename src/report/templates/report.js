
"use strict";
// A click on a column's head sorts its table: numbers by their full value, what was not measured last.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  if (body.rows.length < 2) continue;
  for (const head of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.title = "Sort by this column";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => row.cells[head.cellIndex];
      const compare = (a, b) => {
        const [x, y] = [key(a), key(b)];
        const [u, v] = [x.dataset.sort, y.dataset.sort];
        if (head.classList.contains("num")) {
          if (u === undefined || v === undefined) return (u === undefined) - (v === undefined);
          return (down ? -1 : 1) * (Number(u) - Number(v));
        }
        return (down ? -1 : 1) * x.textContent.localeCompare(y.textContent, "en", { numeric: true });
      };
      body.append(...[...body.rows].sort(compare));
    });
  }
}
