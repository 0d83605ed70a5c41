// The budget: numbers linear between the points, as in budget.py.
const between = (a, b, part) => (known(a) && known(b) ? a + part * (b - a) : null);

function budgetAt(spend) {
  const { knots } = figures.budget;
  const within = Math.min(Math.max(spend, knots[0].spend), knots[knots.length - 1].spend);
  const next = Math.max(knots.findIndex((knot, place) => place > 0 && within <= knot.spend), 1);
  const [before, after] = [knots[next - 1], knots[next]];
  const width = after.spend - before.spend;
  const part = width > 0 ? (within - before.spend) / width : 1;
  const made = { spend: within };
  ["gain", "low", "high", "lot", "price"].forEach((key) => { made[key] = between(before[key], after[key], part); });
  made.shares = before.shares && after.shares ? before.shares.map((a, slot) => a + part * (after.shares[slot] - a)) : null;
  return made;
}

function showBudget() {
  const { rows, places } = figures.budget;
  const now = budgetAt(state.budget / rows);
  const sign = figures.unit.sign;
  const total = now.gain * rows;
  const values = {
    budget: number(now.spend * rows), spend: number(now.spend), per: figures.unit.per,
    gain: amount(now.gain, places, sign, true), total: amount(total, null, sign, true), low: amount(now.low, places, sign),
    high: amount(now.high, places, sign), level: percent(figures.budget.level), price: amount(known(now.price) ? twoDigits(now.price) : null, null, sign),
  };
  say("s-budget", "budget", values);
  byId("budget-slide").setAttribute("aria-valuetext", values.budget);
  const chart = byId("budget-chart");
  const [low, high, wide] = ["bottom", "top", "wide"].map((key) => Number(chart.dataset[key]));
  const x = across(scaled(0, wide)(now.spend * rows));
  set(chart.querySelector('[data-mark="line"]'), { x1: x, x2: x });
  set(chart.querySelector('[data-mark="here"]'), { cx: x, cy: Number(chart.dataset.height) * (1 - scaled(low, high)(total)) });
  chart.setAttribute("aria-label", sentence("budget_label", values));
  const bar = byId("budget-bar");
  if (!bar || !now.shares) return;
  let before = 0;
  now.shares.forEach((share, slot) => {
    set(bar.querySelector(`[data-share="${slot}"]`), { x: across(before), width: across(share) });
    before += share;
  });
  const parts = now.shares.map((share, slot) => `${figures.slots[slot]} ${percent(share)}`);
  bar.setAttribute("aria-label", `Shares of the actions: ${parts.join(", ")}`);
}

// A box without a budget, or with one beyond the curve, is said; the last good one stays.
function readBudget(input) {
  const value = input.valueAsNumber;
  const most = Number(input.max);
  const valid = Number.isFinite(value) && value >= 0 && value <= most * (1 + 1e-9);
  byId("budget-box").setAttribute("aria-invalid", String(!valid));
  byId("bad-budget").hidden = valid;
  if (valid) {
    state.budget = value;
    if (input.id === "budget-slide") byId("budget-box").value = value;
    else byId("budget-slide").value = value;
  } else {
    byId("bad-budget").textContent = sentence("bad_budget", { most: number(most), budget: number(state.budget) });
  }
}

function startBudget(react) {
  byId("budget-controls").hidden = false;
  ["budget-slide", "budget-box"].forEach((id) => react(byId(id), readBudget));
}

function restoreBudget() {
  state.budget = figures.budget.start;
  ["budget-slide", "budget-box"].forEach((id) => { byId(id).value = state.budget; });
  byId("budget-box").removeAttribute("aria-invalid");
  byId("bad-budget").hidden = true;
}

extras.push({ start: startBudget, show: showBudget, restore: restoreBudget });
