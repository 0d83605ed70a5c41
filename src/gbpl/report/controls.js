// The controls: level of the intervals, threshold of deferral, costs. All text is written by textContent.
const figures = JSON.parse(document.getElementById("figures").textContent);
const extras = []; // of parts that are not always there: what to do at the start, at each change, and at a reset
const state = { budget: null, level: figures.level, costs: [...figures.costs], deferral: chosenEntry(figures.deferral?.level) };

function chosenEntry(level) {
  if (!figures.deferral) return null;
  const far = (entry) => Math.abs(entry.level - level);
  return figures.deferral.curve.reduce((best, entry) => (far(entry) < far(best) ? entry : best));
}

// Values at the costs of the page. With u the weights of (policy, actions, shares) in a gain, its mean moves by what the
// costs add, and its variance is u'Cu; quantiles move with the mean and widen with the standard deviation.
function shifts() {
  if (!figures.moments) return null;
  const change = state.costs.map((cost, a) => cost - figures.costs[a]);
  const count = figures.labels.length;
  const { mean, covariance } = figures.moments;
  // Of the policy (own 1) less a mix of single actions.
  const sd = (own, mix, changes) => {
    const u = new Array(1 + 2 * count).fill(0);
    u[0] = own;
    changes.forEach((value, a) => { u[1 + count + a] = -own * value; });
    mix.forEach((share, a) => { u[1 + a] = -share; });
    const rows = covariance.map((row) => row.reduce((sum, c, j) => sum + c * u[j], 0));
    return Math.sqrt(Math.max(rows.reduce((sum, value, i) => sum + value * u[i], 0), 0));
  };
  const none = change.map(() => 0);
  const policy = -change.reduce((sum, value, a) => sum + value * mean[1 + count + a], 0);
  const ratio = (now, before) => (before > 0 ? now / before : 1);
  const costOf = (mix) => mix.reduce((sum, share, a) => sum + share * change[a], 0);
  return {
    policy,
    changed: change.some((value) => value !== 0),
    widen: ratio(sd(1, none, change), sd(1, none, none)),
    gain: (mix) => policy + costOf(mix),
    value: (mix) => -costOf(mix),
    gainSd: (mix) => sd(1, mix, change),
    gainWiden: (mix) => ratio(sd(1, mix, change), sd(1, mix, none)),
    between: (mix, other) => {
      const difference = mix.map((share, a) => share - other[a]);
      const gain = difference.reduce((sum, share, a) => sum + share * mean[1 + a], 0) - costOf(difference);
      return { gain, se: sd(0, difference, change) };
    },
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
  const moments = shifts();
  const other = moments && moments.changed ? moments : null;
  const { level } = state;
  const quantiles = other ? moved(figures.quantiles, other.policy, other.widen) : figures.quantiles;
  const rows = figures.alternatives.map((item, place) => {
    if (other && item.action === null) {
      return { place, action: null, known: false, value: null, gain: null, band: [null, null], chance: null };
    }
    const gain = other ? plus(item.gain, other.gain(item.mix)) : item.gain;
    const own = other ? moved(item.quantiles, other.gain(item.mix), other.gainWiden(item.mix)) : item.quantiles;
    const [low, high] = interval(own, level) ?? [null, null];
    const se = other && item.action !== null ? other.gainSd(item.mix) : item.se;
    return {
      place, label: item.label, own, action: item.action, mix: item.mix, share: item.share, se, gain, low, high, band: bandOf(item.action, gain, se, level),
      widest: interval(own, 0.99), known: known(gain) && Boolean(own),
      value: other ? plus(item.value, other.value(item.mix)) : item.value,
      chance: other && known(gain) ? chanceOf(gain, other.gainSd(item.mix)) : item.chance,
    };
  });
  let best = rows[figures.best] ?? null;
  if (other) best = rows.filter((row) => row.action !== null && known(row.value)).reduce((a, b) => (b.value > a.value ? b : a));
  rows.forEach((row) => { row.best = row === best; });
  const chances = rows.filter((row) => row.action !== null).map((row) => row.chance);
  if (best) best.sure = chances.every(known) ? Math.min(...chances) : null;
  const [low, high] = interval(quantiles, level) ?? [null, null];
  const usual = rows[figures.usual] ?? null;
  const single = best && usual && best !== usual && moments ? moments.between(best.mix, usual.mix) : null;
  const overUsual = (row) => (moments && row !== usual ? moments.between(row.mix, usual.mix) : null);
  const options = usual ? rows.filter((row) => row.action !== null && row !== usual && known(row.value)) : [];
  options.sort((a, b) => b.value - a.value || a.place - b.place);
  const singles = options.slice(0, 3).map((row) => ({ row, ...overUsual(row) })).filter(({ gain }) => known(gain));
  return { changed: Boolean(other), other, usual, single, singles, estimate: plus(figures.estimate, other ? other.policy : 0), low, high, rows, best };
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
const plain = (value) => number(value, figures.places);
const money = (value, signed = false) => amount(value, figures.places, figures.unit.sign, signed);
const ends = (low, high, write = money) => (known(low) ? `${write(low)} to ${write(high)}` : UNKNOWN);
const level = () => percent(state.level);

function verdictOf(best) {
  if (best && best.action === figures.only) return ["same", "Nothing to gain"];
  if (!best || !known(best.gain) || !known(best.sure)) return ["unknown", "Not known"];
  const [, key, badge] = figures.verdicts.find(([least]) => best.sure >= least);
  return [key, badge];
}

// The best alternative in sentences, as in words.py.
function rivalOf(best) {
  const limited = known(best.share) && best.share < 1;
  const others = ` by lot and ${figures.names.default} to the others`;
  return {
    best: figures.labels[best.action], rivals: figures.rivals,
    how: limited ? "giving " : "giving everybody ", give: limited ? "Give " : "Give everybody ",
    lot: limited ? ` to ${percent(best.share)} of the rows${others}` : "",
  };
}

function totalOf(gain) {
  const { sign, per, population } = figures.unit;
  if (!known(gain) || !population) return "";
  return `, about ${amount(twoDigits(gain * population), null, sign)} for ${count(population)}${per === "row" ? " rows" : ""}`;
}

// The rules of advice.py.
function moreRows(gain, se) {
  const { wanted, most } = figures.adviceLimits;
  if (!figures.rows || !(gain > 0) || !(se > 0)) return null;
  const times = ((wanted * se) / gain) ** 2 - 1;
  return times > 0 && times <= most ? Math.trunc(twoDigits(figures.rows * times)) : null;
}

function adviceOf({ best, usual, single }) {
  const { shown } = figures.adviceLimits;
  const complete = (row) => row && known(row.gain) && known(row.se) && known(row.chance) && known(row.low);
  if (!complete(best) || !complete(usual) || !known(best.sure)) return { key: "unknown", reasons: [], values: {}, same: false };
  const singleChance = single ? chanceOf(single.gain, single.se) : null;
  let key = usual.chance >= shown ? "policy" : "default";
  if (singleChance !== null && singleChance >= shown) key = "single";
  if (best.sure >= shown) key = "policy";
  const more = key === "default" ? moreRows(usual.gain, usual.se) : null;
  if (more !== null) key = "gather";
  const settle = moreRows(best.gain, best.se);
  const same = figures.only !== null && figures.only === (key === "single" ? best.action : usual.action);
  let reasons = same ? ["why_same"] : [`why_${key}`];
  if (key === "single") reasons = ["why_single", same ? "and_same" : best.sure > 0.5 && best.gain > 0 ? "and_better" : "and_worse"];
  if (key === "policy") reasons = ["why_policy", ...(best.sure < shown && best !== usual ? ["and_unshown"] : [])];
  const values = {
    ...rivalOf(best), per: figures.unit.per, level: level(), chance: chance(best.sure), costs: money(best.gain),
    more: count(more), settle: settle === null ? "" : `; about ${count(settle)} more rows would settle it`,
    gain_d: money(usual.gain, true), low_d: money(usual.low), high_d: money(usual.high), chance_d: chance(usual.chance),
    total_d: totalOf(usual.gain),
  };
  if (single) {
    const wide = reach(state.level) * single.se;
    Object.assign(values, {
      gain_s: money(single.gain, true), low_s: money(single.gain - wide), high_s: money(single.gain + wide),
      chance_s: chance(singleChance), total_s: totalOf(single.gain),
    });
  }
  return { key, reasons, values, same };
}

function showAdvice(now) {
  const { key, reasons, values, same } = adviceOf(now);
  say("s-advice", `advise_${key}`, values);
  byId("s-reason").replaceChildren(...reasons.flatMap((part) => fill(figures.patterns[part], { ...figures.names, ...values })));
  const banner = document.querySelector(".advice");
  banner.className = `advice ${key}${banner.classList.contains("alone") ? " alone" : ""}`;
  say("s-whom", `whom_${key}`, values);
  showOptions(now, key);
  showBrings(now, key, same && key !== "single" && key !== "policy");
}

const within = (gain, se, share) => [gain - reach(share) * se, gain + reach(share) * se];

// Gains over the default: of the policy, then of the best single actions; as in glance.py.
function showOptions({ usual, best, singles }, key) {
  const chart = byId("options");
  if (!chart || !usual || !usual.known) return;
  const advised = (label, is) => (is ? label + figures.advised : label);
  const rows = [{ ...usual, place: 0, label: advised("the policy", key === "policy"), best: key === "policy" }];
  singles.forEach(({ row, gain, se }) => {
    const is = key === "single" && row === best;
    const [low, high] = within(gain, se, state.level);
    rows.push({
      place: rows.length, known: true, gain, low, high, widest: within(gain, se, 0.99), best: is,
      label: advised(row.label, is),
    });
  });
  const words = { level: level(), default: figures.names.default, per: figures.unit.per };
  say("s-options", "options", words);
  drawForest(chart, rows, (value) => money(value, true), sentence("options_label", words));
}

// What is advised beside the default; the policy where the advice is to change nothing.
function showBrings({ usual, best, single, estimate }, key, same) {
  if (!usual || !byId("s-brings")) return;
  const alone = key === "single" && single;
  const [low, high] = alone ? within(single.gain, single.se, state.level) : [usual.low, usual.high];
  const gain = alone ? single.gain : usual.gain;
  const pair = [[usual.label, usual.value], alone ? [best.label, best.value] : ["the policy", estimate]];
  say("s-brings", `brings_${same ? "same" : key}`, { option: pair[1][0], per: figures.unit.per });
  show("brings", money(gain, true));
  show("brings_span", ends(low, high));
  const total = totalOf(gain).replace(/^, /, "");
  show("brings_total", total && `; ${total}`);
  if (!byId("bars")) return;
  const [[first, before], [second, after]] = pair;
  const words = { first, before: money(before), second, after: money(after) };
  drawBars(byId("bars"), pair, money, sentence("bars_label", words));
}

function showDots({ best }) {
  if (!byId("dots") || !best || !best.own) return;
  const values = Array.from({ length: 20 }, (_, i) => quantile(best.own, (i + 0.5) / 20));
  const words = { ...rivalOf(best), above: String(values.filter((value) => value > 0).length) };
  drawDots(byId("dots"), values, sentence("dots_label", words));
}

function showDecision({ changed, estimate, low, high, best }) {
  const { per } = figures.unit;
  const worth = { value: money(estimate), low: money(low), high: money(high), level: level(), per };
  const net = figures.net || changed;
  say("s-mean", known(estimate) ? (net ? "mean_net" : "mean") : "worth_unknown", worth);
  say("s-welfare", "welfare", worth);
  show("level", level());
  show("value", worth.value);
  show("span", ends(low, high));
  if (!best) return;
  const gain = {
    ...rivalOf(best), gain: money(best.gain, true), low: money(best.low), high: money(best.high),
    chance: chance(best.sure), level: level(), best_value: money(best.value), value: worth.value, per,
  };
  const [key, badge] = verdictOf(best);
  say("s-verdict", key, gain);
  say("s-short", `short_${key}`, gain);
  say("s-against", key, gain);
  say("s-gain", `${key}_gain`, gain);
  say("s-alternatives", known(best.gain) ? "alternatives" : "alternatives_unknown", gain);
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
  showCell(table.querySelector(".policy"), "value", plain(estimate), estimate);
  rows.forEach((row) => {
    const line = table.querySelector(`[data-row="${row.place}"]`);
    showCell(line, "value", plain(row.value), row.value);
    showCell(line, "gain", plain(row.gain), row.gain);
    line.querySelector('[data-cell="span"]').dataset.label = `${level()} interval`;
    showCell(line, "span", ends(row.low, row.high, plain), row.low);
    showCell(line, "band", ends(...row.band, plain), row.band[0]);
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
  if (byId("forest")) drawForest(byId("forest"), rows.map(({ label, ...row }) => row), plain, sentence("forest_label", { level: level() }));
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
    welfare: money(entry.welfare), low: money(low), high: money(high), level: level(), per: figures.unit.per,
  };
  say("s-review", entry.share > 0 ? "review" : "review_none", values);
  say("s-defer", entry.share > 0 ? "defer" : "defer_none", values);
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
  showAdvice(now);
  showDecision(now);
  showDots(now);
  showAlternatives(now);
  showCharts(now);
  showDeferral();
  extras.forEach((extra) => extra.show?.());
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

// A box that holds no cost, or one below its least, is said, and counts as the cost of the fit.
function readCost(input) {
  const a = Number(input.dataset.cost);
  const value = input.valueAsNumber;
  const valid = Number.isFinite(value) && value >= Number(input.min);
  input.setAttribute("aria-invalid", String(!valid));
  state.costs[a] = valid ? value : figures.costs[a];
  showBadCosts();
}

function showBadCosts() {
  const bad = all('[data-cost][aria-invalid="true"]');
  if (!byId("bad-costs")) return;
  byId("bad-costs").hidden = !bad.length;
  byId("bad-costs").replaceChildren(...bad.flatMap((input) => fill(figures.patterns.bad_cost, {
    action: figures.labels[Number(input.dataset.cost)], least: number(Number(input.min)),
    before: number(figures.costs[Number(input.dataset.cost)]),
  })));
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
  showBadCosts();
  if (byId("defer")) byId("defer").value = state.deferral.level;
  extras.forEach((extra) => extra.restore?.());
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
  extras.forEach((extra) => extra.start?.(react));
  byId("controls").hidden = !figures.quantiles && !document.querySelector("[data-reach], [data-se]");
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("reset").addEventListener("click", () => speak(restore()));
  all("table.sortable").forEach(makeSortable);
  all("table[id]").forEach(makeDownload);
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
