// What is under a point of the chart.
window.rlTimeline = window.rlTimeline || {};

(function (tl) {
  const FULL = 65535;
  const NEAR = 3; // pixels beside a short interval that still hit it

  // {region, t, row?, at?, item?, bucket?, state?, ...}; `region` is where the point is.
  tl.hit = function (chart, x, y) {
    const { regions, x0 } = chart;
    const inside = (region) => y >= region.top && y < region.top + region.height;
    const t = chart.time(Math.max(x, x0));
    if (inside(regions.minimap)) return { region: "minimap", t };
    for (const name of ["ruler", "versions", "steps"]) {
      if (inside(regions[name])) return { region: x < x0 ? "names" : name, t };
    }
    if (y >= regions.panels.top) return { region: "panels", t, panel: panelAt(chart, y) };
    const row = chart.visible.find((r) => {
      const top = chart.rowTop(r);
      return y >= top && y < top + r.height;
    });
    if (!row) return { region: "empty", t };
    if (row.type === "group") return { region: "group", t, row, ...(x < x0 ? {} : shares(chart, row, t)) };
    if (x < x0) return { region: "names", t, row };
    if (row.type === "strip") return stripHit(chart, row, t, y);
    return laneHit(chart, row, t, y);
  };

  function panelAt(chart, y) {
    const { top, each, panels } = chart.regions.panels;
    return panels[Math.floor((y - top) / each)] || null;
  }

  function stripHit(chart, row, t, y) {
    const place = Math.min(row.lanes.length - 1, Math.floor((y - chart.rowTop(row)) / row.each));
    const lane = row.lanes[place];
    const answer = chart.data.of("strip", lane.number, chart.view).pop();
    const found = { region: "strip", t, row, lane };
    if (!answer) return found;
    const { first_s, bucket_s, count } = answer.frames.dense;
    const bucket = Math.floor((t - first_s) / bucket_s);
    if (bucket < 0 || bucket >= count) return found;
    const at = answer.strip.get(lane.number) * count + bucket;
    const state = answer.arrays.dense_state[at];
    return state === 255 ? found : { ...found, state, share: answer.arrays.dense_share[at] / 255, bucket_s };
  }

  function shares(chart, row, t) {
    const answer = chart.data.of("group", row.group.id, chart.view).pop();
    if (row.mode !== "shut" || !answer) return {};
    const { first_s, bucket_s, count } = answer.frames.groups;
    const bucket = Math.floor((t - first_s) / bucket_s);
    if (bucket < 0 || bucket >= count) return {};
    const { states, row: first } = answer.group.get(row.group.id);
    const parts = states
      .map((state, i) => ({ state, share: answer.arrays.group_share[(first + i) * count + bucket] }))
      .filter((part) => part.share > 0);
    return { parts, bucket_s };
  }

  function laneHit(chart, row, t, y) {
    const inner = y - chart.rowTop(row);
    let at = row.tops.findIndex(([top, height]) => inner >= top - 1 && inner <= top + height);
    if (at < 0) at = row.tops.length - 1;
    const found = { region: "lane", t, row, lane: row.lane, at };
    const answers = chart.data.of("lane", row.lane.number, chart.view);
    for (const answer of answers.reverse()) {
      if (t < answer.from_s || t > answer.to_s) continue;
      const marker = markerAt(chart, answer, row, t, inner);
      if (marker) return { ...found, marker };
      const item = itemAt(chart, answer, row.lane.number, at, t);
      const area = areaAt(answer, row.lane.number, t);
      if (item) return { ...found, ...item, area };
      const parts = bucketAt(chart, answer, row.lane.number, at, t);
      return { ...found, ...(parts || {}), area };
    }
    return found;
  }

  function markerAt(chart, answer, row, t, inner) {
    if (inner < row.height - 13 || row.type === "requests") return null;
    const a = answer.arrays;
    const near = 6 / chart.scale;
    const i = (answer.marks.get(row.lane.number) || []).find(
      (m) => Math.abs(answer.from_s + a.marker_at[m] - t) <= near,
    );
    if (i === undefined) return null;
    return {
      kind: chart.meta.marker_kinds[a.marker_kind[i]],
      t: answer.from_s + a.marker_at[i],
      version: a.marker_version[i] === tl.NULL ? null : a.marker_version[i],
      reason: a.marker_reason[i] < 0 ? null : chart.meta.marker_reasons[a.marker_reason[i]],
      count: a.marker_count[i],
    };
  }

  // The shortest interval at the time, or the nearest within a few pixels.
  function itemAt(chart, answer, lane, at, t) {
    const a = answer.arrays;
    const offset = t - answer.from_s;
    let best = null;
    for (const s of answer.lane.get(lane)) {
      if (a.series_row[s] !== at) continue;
      for (let i = a.item_bounds[s]; i < a.item_bounds[s + 1]; i++) {
        const start = a.item_start[i];
        const away = Math.max(start - offset, offset - start - a.item_length[i], 0);
        if (away > NEAR / chart.scale) continue;
        if (best && (away > best.away || (away === best.away && a.item_length[i] >= best.length))) continue;
        best = {
          away, length: a.item_length[i], start: answer.from_s + start, state: a.series_state[s],
          step: a.item_step[i] === tl.NULL ? null : a.item_step[i],
          version: a.item_version[i] === tl.NULL ? null : a.item_version[i],
          open: Boolean(a.item_open[i]),
        };
      }
    }
    return best && { item: best, state: best.state };
  }

  function bucketAt(chart, answer, lane, at, t) {
    const a = answer.arrays;
    const { first_s, bucket_s, count } = answer.frames.cells;
    const bucket = Math.floor((t - first_s) / bucket_s);
    if (bucket < 0 || bucket >= count) return null;
    const parts = [];
    for (const s of answer.lane.get(lane)) {
      if (a.series_row[s] !== at) continue;
      const i = find(a.cell_bucket, a.cell_bounds[s], a.cell_bounds[s + 1], bucket);
      if (i < 0) continue;
      const share = a.cell_share[i] / FULL;
      parts.push({ state: a.series_state[s], share, gap_s: (a.cell_gap[i] / FULL) * bucket_s });
    }
    return parts.length ? { parts, bucket_s, bucket_from: first_s + bucket * bucket_s } : null;
  }

  function find(values, low, high, wanted) {
    const end = high;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] < wanted) low = middle + 1;
      else high = middle;
    }
    return low < end && values[low] === wanted ? low : -1;
  }

  function areaAt(answer, lane, t) {
    const area = answer.area.get(lane);
    if (!area) return null;
    const { first_s, bucket_s, count } = answer.frames.gauges;
    const bucket = Math.floor((t - first_s) / bucket_s);
    if (bucket < 0 || bucket >= count) return null;
    const value = answer.arrays.area_mean[area.row * count + bucket];
    return Number.isNaN(value) ? null : { gauge: area.gauge, value };
  }
})(window.rlTimeline);
