// The panel about what was clicked: its record, and for a bubble the evidence of its cause.
window.rlTimeline = window.rlTimeline || {};

(function (tl) {
  const el = (...parts) => tl.el(...parts);

  tl.showDetail = function (chart, detail) {
    const panel = chart.detailPanel;
    panel.replaceChildren(heading(chart, detail), ...body(chart, detail));
    panel.hidden = false;
    chart.root.classList.add("tl-has-detail");
    chart.resize();
  };

  tl.hideDetail = function (chart) {
    chart.detailPanel.hidden = true;
    chart.root.classList.remove("tl-has-detail");
    chart.resize();
  };

  function heading(chart, detail) {
    const state = detail.state || { label: detail.kind === "stretch" ? "Several states" : "Nothing here" };
    const swatch = el("span", { class: "tl-swatch" });
    swatch.style.background = state.colour || "transparent";
    const close = el("button", {
      type: "button", class: "tl-close", "aria-label": "Close the details", text: "×",
      onclick: () => chart.pick(null),
    });
    return el(
      "header", {},
      el("div", {}, el("h2", {}, swatch, el("bdi", { text: state.label })), el("p", { class: "tl-quiet" }, el("bdi", { text: laneText(detail) }))),
      close,
    );
  }

  function laneText(detail) {
    if (detail.kind === "requests") return `${detail.lane}, slot ${detail.row + 1}`;
    return detail.lane;
  }

  function body(chart, detail) {
    if (detail.kind === "nothing") return [el("p", { text: `No record at ${tl.moment(detail.t_s)}.` })];
    if (detail.kind === "stretch") return [stretch(detail)];
    return [
      actions(chart, detail),
      facts(detail),
      ...(detail.evidence ? evidence(detail.evidence) : []),
      ...(detail.nearby && detail.nearby.states.length > 1 ? [el("h3", { text: "Also within a few pixels" }), stretch(detail.nearby)] : []),
    ];
  }

  function actions(chart, detail) {
    const end = detail.end_s === null ? chart.meta.duration_s : detail.end_s;
    const button = (text, act) => el("button", { type: "button", class: "tl-button", text, onclick: act });
    return el(
      "div", { class: "tl-actions" },
      button("Zoom to it", () => chart.zoomTo(detail.start_s, end)),
      button("← Previous", () => chart.step(-1)),
      button("Next →", () => chart.step(1)),
    );
  }

  function facts(detail) {
    const fine = Math.max(1e-9, (detail.duration_s || detail.so_far_s || 1) / 1000);
    const rows = [
      ["from", tl.moment(detail.start_s, fine)],
      ["to", detail.end_s === null ? "still open" : tl.moment(detail.end_s, fine)],
      detail.end_s === null
        ? ["so far", tl.duration(detail.so_far_s, 5)]
        : ["lasts", tl.duration(detail.duration_s, 5)],
      detail.step !== null ? ["step", detail.step] : null,
      detail.version !== null ? ["version", detail.version] : null,
      ...Object.entries(detail.fields || {})
        .filter(([, value]) => value !== null)
        .map(([key, value]) => [label(key), valueText(key, value)]),
    ];
    return table(rows.filter(Boolean));
  }

  function label(key) {
    return key.replace(/_per_s$/, "/s").replace(/_s$/, "").replaceAll("_", " ");
  }

  function valueText(key, value) {
    if (typeof value === "number" && key.endsWith("_s") && !key.endsWith("per_s")) return tl.duration(value, 4);
    if (typeof value === "number") return tl.quantity(value);
    return String(value);
  }

  function table(rows) {
    const lines = rows.map(([name, value]) =>
      el("tr", {}, el("th", { scope: "row" }, el("bdi", { text: name })), el("td", {}, el("bdi", { text: value }))),
    );
    return el("table", { class: "tl-facts" }, el("tbody", {}, ...lines));
  }

  function evidence(found) {
    const parts = [];
    if (found.meaning) parts.push(el("p", { class: "tl-meaning", text: sentence(found.meaning) }));
    if (found.gauges.length) {
      parts.push(el("h3", { text: "What decided" }), gauges(found.gauges));
    }
    const known = found.slots.filter((slot) => slot.mean_in_flight !== null);
    if (known.length) {
      parts.push(el("h3", { text: "Requests in flight meanwhile" }));
      parts.push(table(known.map((slot) => [slot.lane, slotText(slot)])));
    }
    if (found.meanwhile.length) {
      parts.push(el("h3", { text: "What others did meanwhile" }));
      parts.push(table(found.meanwhile.map((lane) => [lane.lane, lane.states.map(stateText).join(", ")])));
    }
    return parts;
  }

  const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;
  const stateText = (state) => `${state.label} ${tl.percent(state.share)}`;

  function slotText(slot) {
    const mean = tl.quantity(slot.mean_in_flight);
    return slot.capacity ? `${mean} on average, ${slot.capacity} slots` : `${mean} on average`;
  }

  function gauges(rows) {
    const head = el("tr", {}, ...["gauge", "at its start", "at its end"].map((text) => el("th", { scope: "col", text })));
    const lines = rows.map((row) =>
      el(
        "tr", {},
        el("th", { scope: "row", title: row.lane }, el("bdi", { text: row.name.replaceAll("_", " ") })),
        el("td", { text: tl.quantity(row.at_start) }),
        el("td", { text: tl.quantity(row.at_end) }),
      ),
    );
    return el("table", { class: "tl-facts tl-gauges" }, el("thead", {}, head), el("tbody", {}, ...lines));
  }

  function stretch(detail) {
    const length = detail.end_s - detail.start_s;
    const rows = detail.states.map((state) => [
      state.label,
      `${state.intervals} × , covers ${tl.duration(state.covered_s)} of ${tl.duration(length)}, longest gap ${tl.duration(state.longest_gap_s)}`.replace(" × ,", " ×,"),
    ]);
    return table(rows);
  }
})(window.rlTimeline);
