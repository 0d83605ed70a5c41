// Finds explained rows: each word must be in a row's text, and a number be one of its values.
function startSearch() {
  const box = byId("search");
  const rows = all("[data-search]");
  const has = (text, word) => (Number.isFinite(Number(word)) ? text.split(" ").includes(word) : text.includes(word));
  byId("search-controls").hidden = false;
  box.value = "";
  box.addEventListener("input", () => {
    const wanted = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    const hits = rows.filter((row) => wanted.every((word) => has(row.dataset.search, word)));
    rows.forEach((row) => { row.hidden = !hits.includes(row); });
    if (wanted.length && hits.length) hits[0].open = true;
    byId("search-found").textContent = wanted.length ? `${count(hits.length)} of ${count(rows.length)} rows.` : "";
  });
}

extras.push({ start: startSearch });
