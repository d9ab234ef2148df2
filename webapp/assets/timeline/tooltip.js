// A few lines beside the pointer. Everything is set as text, never as markup.
window.rlTimeline = window.rlTimeline || {};

(function (tl) {
  // Creates an element with text and children.
  tl.el = function (name, properties = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(properties)) {
      if (value === null || value === undefined) continue;
      if (key === "text") element.textContent = value;
      else if (key === "class") element.className = value;
      else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
      else element.setAttribute(key, value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  };

  tl.showTooltip = function (chart, hit, x, y) {
    const tip = chart.tip;
    const lines = hit ? describe(chart, hit) : [];
    if (!lines.length) {
      tip.hidden = true;
      return;
    }
    tip.replaceChildren(...lines.map(([text, kind, colour]) => lineOf(text, kind, colour)));
    tip.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = tip;
    const left = x + 16 + width > chart.width ? x - width - 12 : x + 16;
    const top = y + 18 + height > chart.height ? y - height - 10 : y + 18;
    tip.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
  };

  function lineOf(text, kind, colour) {
    const line = tl.el("div", { class: `tl-tip-${kind}` });
    if (colour) {
      const swatch = tl.el("span", { class: "tl-swatch" });
      swatch.style.background = colour;
      line.append(swatch);
    }
    line.append(tl.el("bdi", { text }));
    return line;
  }

  function describe(chart, hit) {
    const lane = hit.lane || (hit.row && hit.row.lane);
    const name = lane ? (lane.role === "requests" ? `${lane.name}, slot ${hit.at + 1}` : lane.name) : null;
    if (hit.marker) return markerLines(hit.marker, name);
    if (hit.item) return [...itemLines(chart, hit, name), ...areaLines(hit)];
    if (hit.parts) return [...partLines(chart, hit, name || hit.row.group.title), ...areaLines(hit)];
    if (hit.region === "strip" && hit.state !== undefined) {
      const state = chart.meta.states[hit.state];
      return [
        [name, "quiet"],
        [`${state.label}: ${tl.percent(hit.share)} of ${tl.duration(hit.bucket_s)}`, "main", state.colour],
      ];
    }
    if (hit.area) return [[name, "quiet"], ...areaLines(hit)];
    if (hit.region === "names" && hit.row && hit.row.lane) return [[name, "main"]];
    return [];
  }

  function itemLines(chart, hit, name) {
    const state = chart.meta.states[hit.state];
    const { item } = hit;
    const length = item.open ? `open, ${tl.duration(item.length)} so far` : tl.duration(item.length);
    const about = [
      item.step !== null ? `step ${item.step}` : null,
      item.version !== null ? `version ${item.version}` : null,
    ].filter(Boolean);
    return [
      [name, "quiet"],
      [`${state.label}: ${length}`, "main", state.colour],
      [`from ${tl.moment(item.start, Math.max(1e-9, item.length / 1000))}`, "more"],
      ...(about.length ? [[about.join(", "), "more"]] : []),
    ];
  }

  function partLines(chart, hit, name) {
    const lines = [[`${name}, ${tl.duration(hit.bucket_s)} here`, "quiet"]];
    for (const part of [...hit.parts].sort((a, b) => b.share - a.share).slice(0, 7)) {
      const state = chart.meta.states[part.state];
      if (state.kind === "container" && hit.parts.length > 1) continue;
      const gap = part.gap_s ? `, longest gap ${tl.duration(part.gap_s)}` : "";
      lines.push([`${state.label}: ${tl.percent(part.share)}${gap}`, "main", state.colour]);
    }
    return lines;
  }

  function areaLines(hit) {
    if (!hit.area || hit.at > 0) return [];
    const of = hit.lane.capacity ? ` of ${hit.lane.capacity} slots` : "";
    return [[`${hit.area.gauge.replaceAll("_", " ")}: ${tl.quantity(hit.area.value)}${of}`, "more"]];
  }

  function markerLines(marker, name) {
    const about = [
      marker.reason,
      marker.version !== null ? `version ${marker.version}` : null,
      marker.count > 1 ? `${marker.count} of them` : null,
    ].filter(Boolean);
    return [
      [name, "quiet"],
      [`${marker.kind} at ${tl.moment(marker.t)}`, "main"],
      ...(about.length ? [[about.join(", "), "more"]] : []),
    ];
  }
})(window.rlTimeline);
