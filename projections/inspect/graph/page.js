"use strict";
(() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const stage = document.getElementById("stage"), view = document.getElementById("view");
  const sheet = document.getElementById("sheet"), panel = document.getElementById("panel");
  const search = document.getElementById("search"), close = document.getElementById("close");
  const boxes = all("#stage [data-rule]:is(button)"), cards = all(".card"), edges = all(".edge");
  let chosen = null, kinds = new Set(), words = "";

  // What belongs together: a rule with its ends and the rules it comes after, an entity with its rules.
  const related = (id) => {
    const hot = new Set([id]), near = new Set();
    for (const box of boxes) {
      const ends = box.dataset.ends.split(" ");
      if (box.dataset.rule === id) {
        ends.forEach((end) => hot.add(end));
        box.dataset.after.split(" ").filter(Boolean).forEach((rule) => near.add(rule));
      } else if (ends.includes(id)) {
        hot.add(box.dataset.rule);
        ends.forEach((end) => near.add(end));
      }
    }
    for (const box of boxes) {
      if (near.has(box.dataset.rule)) box.dataset.ends.split(" ").forEach((end) => near.add(end));
    }
    return [hot, near];
  };
  const matching = () => {
    const hot = new Set();
    for (const box of boxes) {
      const text = (box.getAttribute("aria-label") + " " + box.title).toLowerCase();
      if ((!kinds.size || kinds.has(box.dataset.kind)) && text.includes(words)) {
        hot.add(box.dataset.rule);
        box.dataset.ends.split(" ").forEach((end) => hot.add(end));
      }
    }
    for (const card of cards) {
      if (words && !kinds.size && card.textContent.toLowerCase().includes(words)) hot.add(card.dataset.entity);
    }
    return [hot, new Set()];
  };
  const show = (id) => {
    const filtered = kinds.size || words;
    const [hot, near] = id ? related(id) : filtered ? matching() : [new Set(), new Set()];
    stage.classList.toggle("busy", Boolean(id || filtered));
    for (const one of [...boxes, ...cards, ...edges]) {
      const name = one.dataset.rule || one.dataset.entity;
      one.classList.toggle("hot", hot.has(name));
      one.classList.toggle("near", near.has(name));
    }
    for (const row of all("#overview .row")) row.classList.toggle("off", Boolean(filtered) && !matching()[0].has(row.dataset.go));
  };
  const choose = (id, scroll) => {
    chosen = id && document.getElementById(id) ? id : null;
    for (const section of all(".detail")) section.hidden = section.id !== (chosen || "overview");
    for (const box of boxes) {
      box.classList.toggle("chosen", box.dataset.rule === chosen);
      box.setAttribute("aria-expanded", String(box.dataset.rule === chosen));
    }
    for (const card of cards) card.classList.toggle("chosen", card.dataset.entity === chosen);
    close.hidden = !chosen;
    panel.scrollTop = 0;
    history.replaceState(null, "", chosen ? "#" + chosen : location.pathname + location.search);
    show(chosen);
    if (scroll && chosen) target(chosen).scrollIntoView({ block: "nearest", inline: "nearest" });
  };
  const target = (id) => boxes.find((box) => box.dataset.rule === id) || cards.find((card) => card.dataset.entity === id);

  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-go]");
    if (link) choose(link.dataset.go === chosen && stage.contains(link) ? null : link.dataset.go, !stage.contains(link));
  });
  for (const one of [...boxes, ...all(".head"), ...all("#overview .row")]) {
    one.addEventListener("pointerenter", () => show(one.dataset.go));
    one.addEventListener("pointerleave", () => show(chosen));
    one.addEventListener("focus", () => one.matches(":focus-visible") && show(one.dataset.go));
    one.addEventListener("blur", () => show(chosen));
  }
  close.addEventListener("click", () => {
    const last = chosen && target(chosen);
    choose(null);
    if (last) (last.querySelector(".head") || last).focus({ preventScroll: true });
  });

  for (const button of all(".filter")) {
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(on));
      kinds[on ? "add" : "delete"](button.dataset.kind);
      show(chosen);
    });
  }
  search.addEventListener("input", () => {
    words = search.value.trim().toLowerCase();
    show(null);
  });

  // Arrow keys go to the nearest box in their direction.
  const stops = [...all(".head"), ...boxes];
  const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const middle = (one) => {
    const box = one.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
  };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      if (document.activeElement === search) search.blur();
      choose(null);
    } else if (event.key === "/" && document.activeElement !== search) {
      event.preventDefault();
      search.focus();
    } else if (ways[event.key] && stops.includes(document.activeElement)) {
      event.preventDefault();
      const [dx, dy] = ways[event.key], [x, y] = middle(document.activeElement);
      const far = (one) => {
        const [ox, oy] = middle(one), along = (ox - x) * dx + (oy - y) * dy;
        const aside = Math.abs((ox - x) * dy) + Math.abs((oy - y) * dx);
        return along > 4 ? along + 2 * aside : Infinity;
      };
      const next = stops.reduce((best, one) => (far(one) < far(best) ? one : best), document.activeElement);
      if (far(next) < Infinity) next.focus();
    }
  });

  // Lines are straight, between facing sides of boxes, and level if the boxes are. Long ones pass over other boxes.
  const level = (one, other) => {
    const wanted = other.offsetTop + other.offsetHeight / 2;
    return Math.min(Math.max(wanted, one.offsetTop + 20), one.offsetTop + one.offsetHeight - 20);
  };
  const draw = () => {
    for (const path of all(".edge path")) {
      const from = target(path.dataset.from), to = target(path.dataset.to), right = from.offsetLeft < to.offsetLeft;
      const start = from.offsetLeft + (right ? from.offsetWidth : 0), end = to.offsetLeft + (right ? 0 : to.offsetWidth);
      path.setAttribute("d", `M${start} ${level(from, to)}L${end} ${level(to, from)}`);
    }
  };
  new ResizeObserver(draw).observe(stage);

  // Size.
  let scale = 1;
  const resize = (to) => {
    scale = Math.min(2, Math.max(0.3, to));
    stage.style.transform = `scale(${scale})`;
    sheet.style.width = `${stage.offsetWidth * scale + 48}px`;
    sheet.style.height = `${stage.offsetHeight * scale + 48}px`;
  };
  const whole = () => Math.min((view.clientWidth - 50) / stage.offsetWidth, (view.clientHeight - 50) / stage.offsetHeight);
  const readable = () => resize(Math.min(1.15, Math.max(whole(), Math.min((view.clientWidth - 50) / stage.offsetWidth, 0.8), 0.62)));
  const fit = () => (Math.abs(scale - whole()) > 0.01 ? resize(whole()) : readable());
  document.getElementById("smaller").addEventListener("click", () => resize(scale / 1.15));
  document.getElementById("larger").addEventListener("click", () => resize(scale * 1.15));
  document.getElementById("fit").addEventListener("click", fit);
  addEventListener("resize", readable);

  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = getComputedStyle(root).colorScheme === "dark" ||
      (getComputedStyle(root).colorScheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
    root.style.colorScheme = dark ? "light" : "dark";
  });

  readable();
  choose(location.hash.slice(1), true);
  addEventListener("hashchange", () => choose(location.hash.slice(1), true));
})();
