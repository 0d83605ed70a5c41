// The controls: level of the intervals, threshold of deferral, costs. All text is written by textContent.
const figures = JSON.parse(document.getElementById("figures").textContent);
const state = { level: figures.level, costs: [...figures.costs], deferral: chosenEntry(figures.deferral?.level) };

function chosenEntry(level) {
  if (!figures.deferral) return null;
  const far = (entry) => Math.abs(entry.level - level);
  return figures.deferral.curve.reduce((best, entry) => (far(entry) < far(best) ? entry : best));
}

// Values at the costs of the page. With u the weights of (policy, actions, shares) in a gain, its mean moves by what the
// costs add, and its variance is u'Cu; quantiles move with the mean and widen with the standard deviation.
function shifts() {
  const change = state.costs.map((cost, a) => cost - figures.costs[a]);
  if (!change.some((value) => value !== 0)) return null;
  const count = figures.labels.length;
  const { mean, covariance } = figures.moments;
  const sd = (action, changes) => {
    const u = new Array(1 + 2 * count).fill(0);
    u[0] = 1;
    changes.forEach((value, a) => { u[1 + count + a] = -value; });
    if (action !== null) u[1 + action] = -1;
    const rows = covariance.map((row) => row.reduce((sum, c, j) => sum + c * u[j], 0));
    return Math.sqrt(Math.max(rows.reduce((sum, value, i) => sum + value * u[i], 0), 0));
  };
  const none = change.map(() => 0);
  const policy = -change.reduce((sum, value, a) => sum + value * mean[1 + count + a], 0);
  const ratio = (now, before) => (before > 0 ? now / before : 1);
  return {
    policy,
    widen: ratio(sd(null, change), sd(null, none)),
    gain: (action) => policy + change[action],
    value: (action) => -change[action],
    gainSd: (action) => sd(action, change),
    gainWiden: (action) => ratio(sd(action, change), sd(action, none)),
  };
}

function moved(quantiles, shift, widen) {
  if (!quantiles) return null;
  const mean = quantiles.reduce((sum, value) => sum + value, 0) / quantiles.length;
  return quantiles.map((value) => mean + shift + (value - mean) * widen);
}

function chanceOf(gain, sd) {
  if (sd > 0) return normalCdf(gain / sd);
  return gain > 0 ? 1 : gain < 0 ? 0 : 0.5;
}

// Bands contain the gains over all single actions at once; their reach is in standard errors, by level.
function bandOf(action, gain, se, level) {
  if (action === null || !known(gain) || !known(se) || !figures.reaches.length) return [null, null];
  const [, reach] = figures.reaches.reduce((a, b) => (Math.abs(b[0] - level) < Math.abs(a[0] - level) ? b : a));
  return [gain - reach * se, gain + reach * se];
}

const plus = (value, shift) => (known(value) ? value + shift : null);

function compute() {
  const other = shifts();
  const { level } = state;
  const quantiles = other ? moved(figures.quantiles, other.policy, other.widen) : figures.quantiles;
  const rows = figures.alternatives.map((item, place) => {
    if (other && item.action === null) {
      return { place, action: null, known: false, value: null, gain: null, band: [null, null], chance: null };
    }
    const gain = other ? plus(item.gain, other.gain(item.action)) : item.gain;
    const own = other ? moved(item.quantiles, other.gain(item.action), other.gainWiden(item.action)) : item.quantiles;
    const [low, high] = interval(own, level) ?? [null, null];
    const se = other && item.action !== null ? other.gainSd(item.action) : item.se;
    return {
      place, action: item.action, gain, low, high, band: bandOf(item.action, gain, se, level),
      widest: interval(own, 0.99), known: known(gain) && Boolean(own),
      value: other ? plus(item.value, other.value(item.action)) : item.value,
      chance: other && known(gain) ? chanceOf(gain, other.gainSd(item.action)) : item.chance,
    };
  });
  let best = rows[figures.best] ?? null;
  if (other) best = rows.filter((row) => row.action !== null && known(row.value)).reduce((a, b) => (b.value > a.value ? b : a));
  rows.forEach((row) => { row.best = row === best; });
  const single = rows.filter((row) => row.action !== null).map((row) => row.chance);
  if (best) best.sure = single.every(known) ? Math.min(...single) : null;
  const [low, high] = interval(quantiles, level) ?? [null, null];
  return { changed: Boolean(other), other, estimate: plus(figures.estimate, other ? other.policy : 0), low, high, rows, best };
}

// Patterns have {number}, {number:b} and {user's text:name}, as in markup.py.
function fill(pattern, values) {
  return pattern.split(/(\{\w+(?::name|:b)?\})/).map((part) => {
    const found = /^\{(\w+)(:name|:b)?\}$/.exec(part);
    if (!found) return document.createTextNode(part);
    if (!found[2]) return document.createTextNode(values[found[1]]);
    const node = document.createElement(found[2] === ":name" ? "bdi" : "b");
    node.textContent = values[found[1]];
    return node;
  });
}

const say = (id, key, values) => byId(id)?.replaceChildren(...fill(figures.patterns[key], { ...figures.names, ...values }));
const sentence = (key, values) => fill(figures.patterns[key], { ...figures.names, ...values }).map((n) => n.textContent).join("");
const show = (key, text) => all(`[data-show="${key}"]`).forEach((node) => { node.textContent = text; });
const money = (value) => number(value, figures.places);
const ends = (low, high) => (known(low) ? `${money(low)} to ${money(high)}` : UNKNOWN);
const level = () => percent(state.level);

function verdictOf(best) {
  if (best && best.action === figures.only) return ["same", "Nothing to gain"];
  if (!best || !known(best.gain) || !known(best.sure)) return ["unknown", "Not known"];
  const [, key, badge] = figures.verdicts.find(([least]) => best.sure >= least);
  return [key, badge];
}

function showDecision({ changed, estimate, low, high, best }) {
  const worth = { value: money(estimate), low: money(low), high: money(high), level: level() };
  const net = figures.net || changed;
  say("s-worth", known(estimate) ? (net ? "worth_net" : "worth") : "worth_unknown", worth);
  say("s-welfare", "welfare", worth);
  show("level", level());
  show("value", worth.value);
  show("span", ends(low, high));
  if (!best) return;
  const gain = {
    best: figures.labels[best.action], gain: money(best.gain), low: money(best.low), high: money(best.high),
    chance: chance(best.sure), level: level(), best_value: money(best.value), value: worth.value,
  };
  const [key, badge] = verdictOf(best);
  say("s-verdict", key, gain);
  say("s-gain", `${key}_gain`, gain);
  say("s-alternatives", known(best.gain) ? "alternatives" : "alternatives_unknown", gain);
  show("best", gain.best);
  show("gain", gain.gain);
  show("gain_span", ends(best.low, best.high));
  show("chance", gain.chance);
  show("badge", badge);
  all('[data-show="badge"]').forEach((node) => { node.className = `badge ${key}`; });
}

function showCell(row, name, text, value) {
  const cell = row.querySelector(`[data-cell="${name}"]`);
  if (!cell) return;
  cell.textContent = text;
  if (known(value)) cell.dataset.value = value;
  else delete cell.dataset.value;
}

function showAlternatives({ estimate, rows }) {
  const table = byId("t-alternatives");
  if (!table) return;
  showCell(table.querySelector(".policy"), "value", money(estimate), estimate);
  rows.forEach((row) => {
    const line = table.querySelector(`[data-row="${row.place}"]`);
    showCell(line, "value", money(row.value), row.value);
    showCell(line, "gain", money(row.gain), row.gain);
    showCell(line, "span", ends(row.low, row.high), row.low);
    showCell(line, "band", ends(...row.band), row.band[0]);
    showCell(line, "chance", chance(row.chance), row.chance);
    line.querySelector(".tagged").hidden = !row.best;
  });
}

function showCharts({ estimate, low, high, rows, other }) {
  const density = byId("density");
  if (density && figures.curve && known(low)) {
    const x = other ? movedCurve(other) : figures.curve.x;
    const words = { value: money(estimate), low: money(low), high: money(high), level: level() };
    drawDensity(density, { x, height: figures.curve.height }, estimate, low, high, sentence("density_label", words));
  }
  if (byId("forest")) drawForest(byId("forest"), rows, figures.places, sentence("forest_label", { level: level() }));
  drawErrorBars(state.level);
}

function movedCurve({ policy, widen }) {
  const mean = figures.quantiles.reduce((sum, value) => sum + value, 0) / figures.quantiles.length;
  return figures.curve.x.map((value) => mean + policy + (value - mean) * widen);
}

function showDeferral() {
  const entry = state.deferral;
  if (!entry) return;
  const wide = reach(state.level);
  const hasError = known(entry.welfare) && known(entry.se);
  const [low, high] = hasError ? [entry.welfare - wide * entry.se, entry.welfare + wide * entry.se] : [null, null];
  const rows = known(figures.rows) ? figures.rows * entry.share : null;
  const values = {
    threshold: number(entry.level, 2), count: count(rows), rows: count(figures.rows), share: percent(entry.share),
    welfare: money(entry.welfare), low: money(low), high: money(high), level: level(),
  };
  say("s-review", entry.share > 0 ? "review" : "review_none", values);
  say("s-defer", "defer", values);
  show("count", values.count);
  show("share", values.share);
  byId("defer").setAttribute("aria-valuetext", values.threshold);
  byId("defer-out").textContent = values.threshold;
  showThreshold(entry);
  const chart = byId("deferral");
  if (!chart) return;
  const at = scaled(Number(chart.dataset.low), Number(chart.dataset.high));
  const tall = Number(chart.dataset.height);
  set(chart.querySelector('[data-mark="chosen"]'), { cx: across(entry.level), cy: tall * (1 - at(entry.welfare)) });
}

function showThreshold(entry) {
  const mark = document.querySelector('#histogram [data-mark="threshold"]');
  if (!mark) return;
  const right = entry.level < 0.6;
  mark.setAttribute("x", across(entry.level));
  const words = mark.querySelector("text");
  words.textContent = right ? "a person looks \u2192" : "\u2190 the policy decides";
  set(words, { x: right ? 6 : -6, "text-anchor": right ? "start" : "end" });
}

function showGroups() {
  if (!figures.groups.length) return;
  const wide = reach(state.level);
  const inside = figures.groups.filter((group) => Math.abs(group.expected - group.estimate) <= wide * group.se).length;
  say("s-groups", "groups", { inside: count(inside), groups: count(figures.groups.length), level: level() });
}

function showChanged(changed) {
  byId("changed").hidden = !changed;
  if (!changed) return;
  const costs = state.costs.flatMap((cost, a) => (cost === figures.costs[a] ? [] : fill(figures.patterns.changed_cost, {
    action: figures.labels[a], cost: number(cost), before: number(figures.costs[a]),
  })));
  const logged = figures.alternatives.some((item) => item.action === null);
  const rest = logged ? [document.createTextNode(figures.patterns.changed_logged)] : [];
  byId("changed").replaceChildren(document.createTextNode(figures.patterns.changed), ...costs, ...rest);
}

function redraw() {
  const now = compute();
  showDecision(now);
  showAlternatives(now);
  showCharts(now);
  showDeferral();
  showGroups();
  byId("level").setAttribute("aria-valuetext", level());
  byId("level-out").textContent = level();
  showChanged(now.changed);
  all("table.sortable").forEach(keepSorted);
  return now;
}

function speak(now) {
  if (!now.best) return;
  byId("spoken").textContent = sentence("spoken", {
    level: level(), value: money(now.estimate), low: money(now.low), high: money(now.high),
    best: figures.labels[now.best.action], gain: money(now.best.gain), gain_low: money(now.best.low),
    gain_high: money(now.best.high), chance: chance(now.best.sure),
  });
}

function readCost(input) {
  const value = input.valueAsNumber;
  const valid = Number.isFinite(value);
  input.setAttribute("aria-invalid", String(!valid));
  if (valid) state.costs[Number(input.dataset.cost)] = value;
}

function restore() {
  state.level = figures.level;
  state.costs = [...figures.costs];
  state.deferral = chosenEntry(figures.deferral?.level);
  byId("level").value = Math.round(100 * figures.level);
  all("[data-cost]").forEach((input) => {
    input.value = figures.costs[Number(input.dataset.cost)];
    input.removeAttribute("aria-invalid");
  });
  if (byId("defer")) byId("defer").value = state.deferral.level;
  return redraw();
}

function start() {
  const react = (input, read) => {
    input.addEventListener("input", () => { read(input); redraw(); });
    input.addEventListener("change", () => { read(input); speak(redraw()); });
  };
  react(byId("level"), (input) => { state.level = Number(input.value) / 100; });
  all("[data-cost]").forEach((input) => react(input, readCost));
  if (byId("defer")) {
    react(byId("defer"), (input) => { state.deferral = chosenEntry(Number(input.value)); });
    byId("defer-controls").hidden = false;
  }
  byId("controls").hidden = !figures.quantiles && !document.querySelector("[data-reach], [data-se]");
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("reset").addEventListener("click", () => speak(restore()));
  all("table.sortable").forEach(makeSortable);
  mindScrolling();
  addEventListener("resize", mindScrolling);
  all("details").forEach((details) => details.addEventListener("toggle", mindScrolling));
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = all("details:not([open])");
    opened.forEach((details) => { details.open = true; });
  });
  addEventListener("afterprint", () => opened.forEach((details) => { details.open = false; }));
  restore(); // a browser may have kept the controls of an earlier visit
}

start();
