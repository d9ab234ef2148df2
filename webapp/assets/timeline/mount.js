// Puts a chart into every `.rl-timeline` that a page shows, and takes it out with its page.
window.rlTimeline = window.rlTimeline || {};

(function (tl) {
  const mounted = new Map();

  async function mount(root) {
    const { run, state } = root.dataset;
    const key = `${run} ${state}`;
    const known = mounted.get(root);
    if (known && known.key === key) return;
    if (known && known.chart) known.chart.close();
    const entry = { key, chart: null };
    mounted.set(root, entry);
    delete root.dataset.ready;
    root.replaceChildren(tl.el("p", { class: "tl-wait", role: "status", text: "Loading the timeline…" }));
    try {
      const waiting = (text) => {
        root.firstChild.textContent = `${text[0].toUpperCase()}${text.slice(1)}…`;
      };
      const meta = await tl.askMeta(run, waiting);
      if (mounted.get(root) !== entry) return;
      entry.chart = new tl.Chart(root, run, JSON.parse(state || "{}"), meta);
      root.rlChart = entry.chart;
    } catch (error) {
      root.dataset.ready = "failed";
      root.replaceChildren(tl.el("p", { class: "tl-wait", role: "alert", text: `The timeline cannot be shown: ${error.message}` }));
    }
  }

  function look() {
    for (const root of document.querySelectorAll(".rl-timeline")) mount(root);
    for (const [root, entry] of mounted) {
      if (root.isConnected) continue;
      if (entry.chart) entry.chart.close();
      mounted.delete(root);
    }
  }

  function start() {
    for (const part of tl.parts) Object.assign(tl.Chart.prototype, part);
    new MutationObserver((changes) => {
      if (changes.some((change) => change.type === "attributes" || change.addedNodes.length || change.removedNodes.length)) look();
    }).observe(document.body, {
      childList: true, subtree: true, attributes: true, attributeFilter: ["data-run", "data-state"],
    });
    look();
  }

  if (document.readyState === "complete") start();
  else window.addEventListener("load", start);
})(window.rlTimeline);
