// Which rows there are, and how high each is. Heights in CSS pixels, `y` from the first row's top.
window.rlTimeline = window.rlTimeline || {};

(function (tl) {
  const HEAD = 22;
  const SUMMARY = 40;
  const ROW = 16;
  const THIN = 9;
  const AREA = 24;
  const SLOT = 7;
  const GAP = 5;
  const MARKS = 10; // below the intervals of a lane that has markers
  const MANY = 24; // lanes of a group that is not drawn lane by lane at first

  // Groups with their lanes; devices are parted by pool.
  tl.groupsOf = function (meta) {
    const groups = [];
    for (const { id, title } of meta.groups) {
      const lanes = meta.lanes
        .map((lane, number) => ({ ...lane, number }))
        .filter((lane) => lane.group === id);
      const pools = id === "devices" ? [...new Set(lanes.map((lane) => lane.pool))] : [null];
      for (const pool of pools) {
        const mine = lanes.filter((lane) => pool === null || lane.pool === pool);
        const own = mine.filter((lane) => lane.role !== "requests");
        if (!own.length) continue;
        groups.push({
          id: pool === null ? id : `${id}/${pool}`,
          title: pool === null ? title : `${pool[0].toUpperCase()}${pool.slice(1)} devices`,
          lanes: mine,
          count: own.length,
          canStrip: own.length > MANY,
        });
      }
    }
    return groups;
  };

  // "open", "strip" (a few pixels a lane) or "shut" (one row for the group).
  tl.modeOf = function (group, state, meta) {
    if (state.shut.has(group.id)) return "shut";
    if (state.strip.has(group.id)) return "strip";
    if (state.wide.has(group.id)) return "open";
    if (!group.canStrip) return "open";
    return group.id.startsWith("devices") && meta.fleet ? "strip" : "shut";
  };

  tl.rowsOf = function (meta, groups, state) {
    const rows = [];
    let y = 0;
    const add = (row) => {
      rows.push({ ...row, y });
      y += row.height;
    };
    for (const group of groups) {
      const mode = tl.modeOf(group, state, meta);
      add({ type: "group", group, mode, height: mode === "shut" ? SUMMARY : HEAD });
      if (mode === "strip") add(strip(group));
      if (mode !== "open") continue;
      for (const lane of group.lanes) {
        if (lane.role === "requests") {
          if (state.lane.has(lane.of)) add(requests(lane));
        } else add(plain(lane));
      }
    }
    return { rows, height: y };
  };

  function strip(group) {
    const lanes = group.lanes.filter((lane) => lane.role !== "requests");
    const each = lanes.length > 160 ? 3 : lanes.length > 64 ? 4 : 6;
    return { type: "strip", group, lanes, each, height: lanes.length * each + GAP };
  }

  function requests(lane) {
    return { type: "requests", lane, tops: slots(lane.rows), each: SLOT, height: lane.rows * SLOT + GAP + 2 };
  }

  function slots(count) {
    return Array.from({ length: count }, (_, i) => [i * SLOT, SLOT - 1]);
  }

  // `tops[r]` is where row r of the lane begins and its height.
  function plain(lane) {
    const tops = [];
    let at = 2;
    for (let row = 0; row < Math.max(1, lane.rows); row++) {
      const isCrowd = lane.group === "others" && lane.rows > 2; // many of one kind at once
      const height = isCrowd ? THIN - 1 : row ? (lane.area ? THIN : ROW - 1) : lane.area ? AREA : ROW;
      tops.push([at, height]);
      at += height + 1;
    }
    return { type: "lane", lane, tops, height: at + GAP - 2 + (lane.marks ? MARKS : 0) };
  }

  // The rows that touch [top, bottom) of the scrolled region.
  tl.visibleRows = function (layout, top, bottom) {
    return layout.rows.filter((row) => row.y < bottom && row.y + row.height > top);
  };
})(window.rlTimeline);
