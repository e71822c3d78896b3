"use strict";
// The states of rules beside the picture, read again every few seconds while the page is visible.
(() => {
  const EVERY = 5000;
  const make = (tag, name, text) => {
    const one = document.createElement(tag);
    if (name) one.className = name;
    if (text !== undefined) one.textContent = text;
    return one;
  };
  // A text with commands between backticks.
  const prose = (tag, name, text) => {
    const one = make(tag, name);
    text.split("`").forEach((part, index) => one.append(index % 2 ? make("code", "", part) : part));
    return one;
  };
  const overview = document.getElementById("overview");
  const status = make("div"), foot = make("p", "live-foot", "Reading the state…");
  status.id = "live";
  overview.prepend(status);
  status.after(foot);
  let before = "";

  const seconds = (number) => `${number < 10 ? number.toFixed(1) : Math.round(number)} s`;
  const fresh = (rule) => {
    if (!rule.freshness) return "";
    const { p50, p99 } = rule.freshness;
    const limit = rule.within === null ? "" : rule.late ? `, more than within: ${rule.within} s` : `, within ${rule.within} s`;
    return `changes were ${seconds(p50)} old when the rule had read them (p99: ${seconds(p99)}${limit})`;
  };
  const sentence = (rule) => [rule.state, fresh(rule)].filter(Boolean).join("; ");
  const beside = (name, rule) => {
    for (const box of document.querySelectorAll(`#stage button[data-rule="${CSS.escape("rule-" + name)}"]`)) {
      box.querySelector(".live")?.remove();
      const quiet = rule.state === "active" && !rule.freshness && rule.level === "ok";
      const text = rule.state === "active" && rule.freshness ? seconds(rule.freshness.p50) : rule.state;
      const mark = make("span", `live ${quiet ? "dot" : "pill"} l-${rule.level}`, quiet ? "" : text);
      mark.title = sentence(rule);
      box.append(mark);
    }
    const panel = document.getElementById("rule-" + name);
    if (!panel) return;
    panel.querySelector(".live-rule")?.remove();
    const part = make("div", "live-rule");
    const line = make("p");
    line.append(make("span", `dot l-${rule.level}`), " " + sentence(rule));
    part.append(line);
    if (rule.says) part.append(prose("p", "", rule.says));
    if (rule.todo) part.append(prose("p", "quiet", rule.todo));
    panel.querySelector("h2").after(part);
  };
  const backfill = (run) => {
    const steps = make("div", "steps");
    const at = run.phases.indexOf(run.phase);
    run.phases.forEach((phase, index) =>
      steps.append(make("span", index < at ? "past" : index === at ? "now" : "", phase)));
    steps.title = `Backfill: ${run.phase}`;
    return steps;
  };
  const show = (found) => {
    const now = JSON.stringify([found.rules, found.findings, found.backfill]);
    if (now === before) return;
    before = now;
    Object.entries(found.rules).forEach(([name, rule]) => beside(name, rule));
    status.replaceChildren(make("h2", "", found.attention ? "Needs attention" : "Status"));
    const list = make("ul", "live-list");
    const unchecked = found.findings.filter((one) => one.level === "unknown" && one.says.startsWith("not checked"));
    for (const one of found.findings.filter((one) => !unchecked.includes(one))) {
      const row = make("li"), text = make("span");
      text.append(make("b", "", one.subject), " " + one.says);
      const mark = make("span", `dot l-${one.level}`);
      mark.title = { ok: "OK", warn: "WARN", action: "ACTION" }[one.level] || "not known";
      row.append(mark, text);
      if (one.subject === "backfill" && found.backfill) {
        const steps = backfill(found.backfill);
        steps.style.gridColumn = "2";
        row.append(steps);
      }
      if (one.todo) row.append(prose("span", "todo", one.todo));
      list.append(row);
    }
    status.append(list);
    if (unchecked.length) {
      const names = unchecked.map((one) => one.subject).join(", ");
      status.append(make("p", "quiet", `Not checked: ${names}. Pass --stack, or the options that name them.`));
    }
  };
  const refresh = async () => {
    if (document.hidden) return;
    try {
      const answer = await fetch("/api/status");
      const found = await answer.json();
      if (!answer.ok) throw new Error(found.error);
      show(found);
      foot.classList.remove("stale");
      foot.textContent = `Ledger as of ${found.at}, services as of ${found.servicesAt}. ${found.reads.requests} requests ` +
        `to DynamoDB since the start, ${found.reads.units} read units. Read-only.`;
    } catch (error) {
      foot.classList.add("stale");
      const reason = error instanceof TypeError ? "The console does not answer. Start it again." : error.message;
      foot.textContent = `Not refreshed: ${reason}`;
    }
  };
  const forever = async () => {
    await refresh();
    setTimeout(forever, EVERY);
  };
  document.addEventListener("visibilitychange", refresh);
  forever();
})();
