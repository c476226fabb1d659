"use strict";
// Keeps what is shown up to date: parts of a page are fetched again by time or by the job's events, and replaced when they differ.
(() => {
  const $ = (id) => document.getElementById(id);
  const shown = new Map();     // id of a part → the text that was last put there
  const asked = new Map();     // id of a part → when it was last asked for
  const now = () => Date.now();

  const waiting = new Set();   // ids of parts that somebody is busy with

  function refresh(id) {
    const part = $(id);
    asked.set(id, now());
    if (!part || waiting.has(id)) return;
    if (!busy(part)) { htmx.trigger(part, "refresh"); return; }
    waiting.add(id);
    setTimeout(() => { waiting.delete(id); refresh(id); }, 1000);
  }

  // busy: somebody is filling in a form of it, has ticked something, or selects text.
  function busy(part) {
    const active = document.activeElement;
    if (part.contains(active) && active.matches("input, select")) return true;
    if (part.querySelector("input[type=checkbox]:checked")) return true;
    const selection = getSelection();
    return !selection.isCollapsed && part.contains(selection.anchorNode);
  }

  setInterval(() => {
    if (document.hidden) return;
    for (const part of document.querySelectorAll(".live")) {
      const every = Number(part.dataset.every || 0) * 1000;
      if (!asked.has(part.id)) asked.set(part.id, now());
      if (every && now() - asked.get(part.id) >= every) refresh(part.id);
    }
  }, 500);

  const away = (is) => { $("away").hidden = !is; };
  document.addEventListener("htmx:sendError", () => away(true));
  document.addEventListener("htmx:timeout", () => away(true));
  document.addEventListener("htmx:responseError", () => away(true));

  document.addEventListener("htmx:beforeSwap", (e) => {
    const part = e.detail.target;
    if (e.detail.isError) return;
    away(false);
    if (!part.classList.contains("live")) return;
    const text = e.detail.xhr.responseText;
    if (shown.get(part.id) === text) { e.detail.shouldSwap = false; return; }
    shown.set(part.id, text);
    kept = { open: [...part.querySelectorAll("details[open][id]")].map((d) => d.id), at: [...part.querySelectorAll(".grid, .scroll")].map((b) => [b.scrollLeft, b.scrollTop]) };
  });
  let kept = null;
  document.addEventListener("htmx:afterSwap", (e) => {
    const part = $(e.detail.target.id) || e.detail.target;
    if (kept) {
      for (const id of kept.open) if ($(id)) $(id).open = true;
      part.querySelectorAll(".grid, .scroll").forEach((box, i) => { if (kept.at[i]) [box.scrollLeft, box.scrollTop] = kept.at[i]; });
      kept = null;
    }
    draw();
  });

  // A job's events. A stream that breaks off is opened again, by the browser or here; each begins with the job as it is.
  const job = $("job");
  let stream = null;
  function follow() {
    if (stream || !job || job.dataset.ended === "true") return;
    const s = stream = new EventSource(job.dataset.events);
    let due = 0;
    const progress = () => {
      away(false);
      if (due) return;
      due = setTimeout(() => { due = 0; refresh("progress"); }, 400);
    };
    s.addEventListener("progress", progress);
    s.addEventListener("end", () => {
      unfollow();
      job.dataset.ended = "true";
      away(false);
      for (const part of job.querySelectorAll(".live")) refresh(part.id);
    });
    s.onerror = () => {
      away(true);
      if (s.readyState === EventSource.CLOSED && stream === s) { stream = null; setTimeout(() => { if (!document.hidden) follow(); }, 2000); }
    };
  }
  function unfollow() { if (stream) stream.close(); stream = null; }
  document.addEventListener("visibilitychange", () => document.hidden ? unfollow() : follow());
  follow();

  // The cells of the grid by arrow keys, and what the one under the pointer or the focus is.
  const tell = (e) => {
    const cell = e.target.closest(".cells a");
    if (cell && $("grid-at")) $("grid-at").textContent = cell.title;
  };
  document.addEventListener("mouseover", tell);
  document.addEventListener("focusin", tell);
  document.addEventListener("keydown", (e) => {
    const box = e.target.closest(".grid");
    const step = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[e.key];
    if (!box || !step) return;
    const here = e.target.closest(".cells a");
    const cells = [...box.querySelectorAll(".cells a")];
    let next = cells[0];
    if (here && step[0]) next = cells[cells.indexOf(here) + step[0]];
    if (here && step[1]) {
      const at = here.getBoundingClientRect();
      const beyond = cells.map((c) => [c, c.getBoundingClientRect()]).filter(([, r]) => (r.top - at.top) * step[1] > at.height / 2);
      const line = Math.min(...beyond.map(([, r]) => (r.top - at.top) * step[1]));
      next = beyond.filter(([, r]) => (r.top - at.top) * step[1] < line + at.height / 2)
        .sort((a, b) => Math.abs(a[1].left - at.left) - Math.abs(b[1].left - at.left)).map(([c]) => c)[0];
    }
    if (next) { next.focus(); e.preventDefault(); }
  });

  // The chart of the last hour.
  function draw() {
    const box = $("chart");
    if (!box || !window.uPlot || box.firstChild && box.dataset.width == box.clientWidth) return;
    box.textContent = "";
    box.dataset.width = box.clientWidth;
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const data = ["times", "done", "failed"].map((name) => JSON.parse(box.dataset[name]).map((n) => n || null)); // no bar for nothing
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "11px system-ui" };
    const bars = uPlot.paths.bars({ size: [0.7, 14], radius: 0.15 });
    const thousands = (n) => n == null ? "" : String(n).replace(/\B(?=(\d{3})+$)/g, "\u202f");
    const series = (label, name) => ({ label, value: (u, n) => thousands(n), stroke: colour(name), fill: colour(name), paths: bars, points: { show: false } });
    new uPlot({
      width: box.clientWidth - 20, height: 190, tzDate: (t) => uPlot.tzDate(new Date(t * 1000), "Etc/UTC"), cursor: { y: false, drag: { x: false, y: false } },
      scales: { y: { range: (u, min, max) => [0, Math.max(4, max * 1.1)] } },
      axes: [{ ...axis, values: "{HH}:{mm}", space: 60 }, { ...axis, size: 52, values: (u, all) => all.map(thousands), incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6, 1e7] }],
      series: [{ label: "Minute", value: (u, t) => t == null ? "" : new Date(t * 1000).toISOString().slice(11, 16) }, series("Done", "--done"), series("Dead letters", "--dlq")],
    }, data, box);
  }
  const redraw = () => { const box = $("chart"); if (box) { box.dataset.width = ""; draw(); } };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  addEventListener("resize", draw);
  draw();
})();
