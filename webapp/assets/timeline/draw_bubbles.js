// Bubbles behind the lanes of the pool that idles.
window.rlTimeline = window.rlTimeline || {};

(function (tl) {
  const FULL = 65535;

  // Behind the lanes of an idling pool: the pattern of the cause.
  tl.drawBubblesBehind = function (chart, c, row, y) {
    const owner = chart.bubbleLaneOf(row.lane);
    if (owner === null || row.type === "requests") return;
    for (const answer of chart.data.of("lane", owner, chart.view)) {
      tl.within(chart, c, answer, () => hatch(chart, c, answer, owner, y + 1, row.height - 3));
    }
  };

  function hatch(chart, c, answer, owner, y, height) {
    const { item_bounds, item_start, item_length, cell_bounds, cell_bucket, cell_share, series_state } =
      answer.arrays;
    const { first_s, bucket_s } = answer.frames.cells;
    const origin = chart.x(answer.from_s);
    for (const s of answer.lane.get(owner)) {
      const state = chart.meta.states[series_state[s]];
      c.globalAlpha = state.name === "unattributed" ? 0.22 : 0.5; // what nobody explains is quiet
      c.fillStyle = chart.theme.hatch(c, state, chart.ratio);
      for (let i = item_bounds[s]; i < item_bounds[s + 1]; i++) {
        const x = Math.max(chart.x0, origin + item_start[i] * chart.scale);
        const end = Math.min(chart.width, origin + (item_start[i] + item_length[i]) * chart.scale);
        if (end > x) c.fillRect(x, y, Math.max(1, end - x), height);
      }
      for (let i = cell_bounds[s]; i < cell_bounds[s + 1]; i++) {
        if (cell_share[i] < FULL / 2) continue;
        const x = chart.x(first_s + cell_bucket[i] * bucket_s);
        if (x < chart.width && x > chart.x0 - 4) c.fillRect(x, y, bucket_s * chart.scale, height);
      }
    }
    c.globalAlpha = 1;
  }
})(window.rlTimeline);
