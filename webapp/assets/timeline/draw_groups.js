// Group headings, groups as one row of stacked shares, and lanes of a few pixels' height.
window.rlTimeline = window.rlTimeline || {};

(function (tl) {
  const NOTHING = 255;

  tl.drawGroup = function (chart, c, row, y) {
    const { theme } = chart;
    c.fillStyle = theme.raised;
    c.fillRect(0, y, chart.width, row.height - 1);
    if (row.mode !== "shut") return;
    for (const answer of chart.data.of("group", row.group.id, chart.view)) {
      drawShares(chart, c, answer, row, y + 3, row.height - 7);
    }
  };

  // The mean share of each state over the group's lanes, in the order of the states.
  function drawShares(chart, c, answer, row, y, height) {
    const { states, row: first } = answer.group.get(row.group.id);
    const { first_s, bucket_s, count } = answer.frames.groups;
    const { group_share } = answer.arrays;
    const below = new Float32Array(count);
    const step = bucket_s * chart.scale;
    const origin = chart.x(first_s);
    c.fillStyle = chart.theme.surface;
    const left = Math.max(chart.x0, chart.x(answer.from_s));
    c.fillRect(left, y, Math.min(chart.width, chart.x(answer.to_s)) - left, height);
    states.forEach((number, i) => {
      const state = chart.meta.states[number];
      if (state.kind === "container") return;
      c.fillStyle = chart.fill(c, state);
      c.globalAlpha = chart.found && !chart.found.has(number) ? 0.18 : 1;
      const shares = group_share.subarray((first + i) * count, (first + i + 1) * count);
      for (let b = 0; b < count; b++) {
        if (!shares[b]) continue;
        const x = origin + b * step;
        if (x > chart.width) break;
        const tall = Math.min(shares[b], 1 - below[b]) * height;
        const low = y + height - below[b] * height;
        below[b] += shares[b];
        if (x + step < chart.x0 || tall <= 0) continue;
        const at = Math.max(chart.x0, Math.round(x));
        c.fillRect(at, low - tall, Math.max(1, Math.round(x + step) - at), tall);
      }
    });
    c.globalAlpha = 1;
  }

  // One lane a few pixels: in each bucket the state that takes most of it; pale where little.
  tl.drawStrip = function (chart, c, row, y) {
    const first = Math.max(0, Math.floor((chart.lanesTop - y) / row.each));
    const last = Math.min(row.lanes.length, Math.ceil((chart.lanesBottom - y) / row.each));
    for (let i = first; i < last; i++) {
      const { number } = row.lanes[i];
      for (const answer of chart.data.of("strip", number, chart.view)) {
        drawStripLane(chart, c, answer, number, y + i * row.each, row.each > 4 ? row.each - 1 : row.each);
      }
    }
  };

  function drawStripLane(chart, c, answer, number, y, height) {
    const { first_s, bucket_s, count } = answer.frames.dense;
    const { dense_state, dense_share } = answer.arrays;
    const at = answer.strip.get(number) * count;
    const step = bucket_s * chart.scale;
    const origin = chart.x(first_s);
    let b = Math.max(0, Math.floor((chart.x0 - origin) / step));
    while (b < count) {
      const state = dense_state[at + b];
      const level = dense_share[at + b] >> 5;
      let end = b + 1;
      while (end < count && dense_state[at + end] === state && dense_share[at + end] >> 5 === level) end++;
      const x = Math.max(chart.x0, Math.round(origin + b * step));
      if (x > chart.width) break;
      if (state !== NOTHING) {
        c.globalAlpha = (0.35 + (0.65 * (level + 1)) / 8) * (chart.found && !chart.found.has(state) ? 0.2 : 1);
        c.fillStyle = chart.meta.states[state].colour;
        c.fillRect(x, y, Math.max(1, Math.round(origin + end * step) - x), height);
      }
      b = end;
    }
    c.globalAlpha = 1;
  }
})(window.rlTimeline);
