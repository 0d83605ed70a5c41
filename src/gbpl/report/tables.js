// Tables that sort and scroll.
const byId = (id) => document.getElementById(id);
const all = (selector) => Array.from(document.querySelectorAll(selector));

// A header's button sorts by its column, the other way round when pressed again; empty cells stay last.
function sortKey(row, column) {
  const value = row.cells[column].dataset.value;
  if (value === undefined) return null;
  return value !== "" && Number.isFinite(Number(value)) ? Number(value) : value;
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}

function keepSorted(table) {
  const heads = Array.from(table.tHead.rows[0].cells);
  const column = heads.findIndex((head) => head.hasAttribute("aria-sort"));
  if (column < 0) return;
  const sign = heads[column].getAttribute("aria-sort") === "ascending" ? 1 : -1;
  const rows = Array.from(table.tBodies[0].rows).map((row) => [sortKey(row, column), row]);
  const full = rows.filter(([key]) => key !== null).sort(([a], [b]) => sign * compare(a, b));
  const empty = rows.filter(([key]) => key === null);
  table.tBodies[0].append(...[...full, ...empty].map(([, row]) => row));
}

function sortBy(table, head) {
  const first = head.classList.contains("n") ? "descending" : "ascending";
  const second = first === "ascending" ? "descending" : "ascending";
  const wanted = head.getAttribute("aria-sort") === first ? second : first;
  Array.from(table.tHead.rows[0].cells).forEach((cell) => cell.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", wanted);
  keepSorted(table);
  byId("spoken").textContent = `Sorted by ${head.textContent}, ${wanted}.`;
}

function makeSortable(table) {
  Array.from(table.tHead.rows[0].cells).forEach((head) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sortBy(table, head));
    head.replaceChildren(button);
  });
}

// Only what scrolls needs a stop of the tab key.
function mindScrolling() {
  all(".scroll").forEach((box) => {
    if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  });
}

// A table as a CSV file: numbers as they are sorted, and text that a spreadsheet would run as a formula made text.
function csvCell(cell) {
  const value = cell.dataset.value;
  const text = value !== undefined && value !== "" && Number.isFinite(Number(value)) ? value : cell.innerText.trim();
  const safe = /^[=+@\t\r-]/.test(text) && !Number.isFinite(Number(text)) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
}

function csvOf(table) {
  return Array.from(table.rows).map((row) => Array.from(row.cells).map(csvCell).join(",")).join("\r\n");
}

function makeDownload(table) {
  const caption = byId(`c-${table.id.replace(/^t-alternatives$|^t-check$/, (id) => id.slice(2))}`);
  if (!caption) return;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "download";
  button.textContent = "Download CSV";
  button.setAttribute("aria-label", `Download CSV: ${caption.textContent.trim()}`);
  button.addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([`\ufeff${csvOf(table)}\r\n`], { type: "text/csv;charset=utf-8" }));
    link.download = `${table.id.replace(/^t-/, "")}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  caption.append(" ", button);
}
