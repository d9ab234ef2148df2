// The toolbar: moving, jumping, searching, what is shown, and help.
window.rlTimeline = window.rlTimeline || {};

(function (tl) {
  const el = (...parts) => tl.el(...parts);

  function button(text, label, act, more = {}) {
    return el("button", { type: "button", class: "tl-button", text, "aria-label": label, title: label, onclick: act, ...more });
  }

  tl.Bar = class {
    constructor(chart) {
      this.chart = chart;
      this.search = this.searchBox();
      this.status = el("span", { class: "tl-status", role: "status", "aria-live": "polite" });
      this.toggles = {
        bubbles: this.toggle("bubbles", "Bubbles", "Patterns of idle causes behind the lanes (B)"),
        panels: this.toggle("panels", "Gauges", "Gauges below the lanes (P)"),
        table: this.toggle("table", "Table", "What the view holds, as a table (T)"),
      };
      this.link = el("a", { class: "tl-button", text: "Perfetto", title: "Download the visible slice for ui.perfetto.dev", download: "" });
      this.dialog = this.makeDialog();
      this.element = el(
        "div", { class: "tl-bar", role: "toolbar", "aria-label": "Timeline" },
        el("span", { class: "tl-set" },
          button("Fit", "Fit the selection or the whole run (F)", () => chart.fit()),
          button("−", "Zoom out (S)", () => chart.zoom(1 / 0.6, null)),
          button("+", "Zoom in (W)", () => chart.zoom(0.6, null))),
        this.jumper("step"), this.jumper("version"),
        this.search,
        el("span", { class: "tl-set" }, ...Object.values(this.toggles)),
        this.link,
        button("Legend", "Colours and patterns", () => this.legend()),
        button("?", "Keys (?)", () => this.help()),
        this.dialog,
      );
    }

    searchBox() {
      const chart = this.chart;
      const box = el("input", {
        type: "search", class: "tl-input tl-search", placeholder: "Search an activity  /", "aria-label": "Search an activity",
        list: "tl-states", maxlength: "200",
      });
      box.value = chart.state.find;
      box.addEventListener("input", () => chart.setFind(box.value));
      box.addEventListener("keydown", (event) => {
        event.stopPropagation();
        if (event.key === "Enter") chart.findNext(event.shiftKey ? -1 : 1);
        if (event.key === "Escape") {
          box.value = "";
          chart.setFind("");
          chart.canvas.focus();
        }
      });
      return box;
    }

    jumper(kind) {
      const chart = this.chart;
      const range = chart.meta[`${kind}s`];
      if (!range) return null;
      const box = el("input", {
        type: "number", class: "tl-input tl-number", placeholder: kind, "aria-label": `Go to ${kind}`,
        min: String(range[0]), max: String(range[1]), title: `${kind} ${range[0]} to ${range[1]}`,
      });
      box.addEventListener("keydown", (event) => event.stopPropagation());
      box.addEventListener("change", () => {
        if (box.value !== "") chart.goTo(kind, Number(box.value));
      });
      this[kind] = box;
      const [back, on] = kind === "step" ? ["[", "]"] : [",", "."];
      return el("span", { class: "tl-set" },
        button("‹", `Previous ${kind} (${back})`, () => chart.jump(kind, -1)), box,
        button("›", `Next ${kind} (${on})`, () => chart.jump(kind, 1)));
    }

    toggle(key, text, label) {
      return button(text, label, () => this.chart.toggle(key), { "aria-pressed": "false" });
    }

    update() {
      const { chart } = this;
      for (const [key, element] of Object.entries(this.toggles)) {
        element.setAttribute("aria-pressed", String(Boolean(chart.state[key])));
      }
      const { from, to } = chart.view;
      const lanes = tl.ranges(chart.laneNumbers(true));
      this.link.href = `/timeline/export?${tl.query({ run: chart.run, from: Math.max(0, from), to, lanes })}`;
      if (this.search.value !== chart.state.find && document.activeElement !== this.search) {
        this.search.value = chart.state.find;
      }
    }

    states() {
      const labels = [...new Set(this.chart.meta.states.map((state) => state.label))].sort();
      return el("datalist", { id: "tl-states" }, ...labels.map((label) => el("option", { value: label })));
    }

    makeDialog() {
      const dialog = el("dialog", { class: "tl-dialog", "aria-label": "About the timeline" });
      dialog.addEventListener("keydown", (event) => event.stopPropagation());
      dialog.addEventListener("click", (event) => {
        if (event.target === dialog) dialog.close();
      });
      return dialog;
    }

    show(title, ...content) {
      const close = button("Close", "Close", () => this.dialog.close());
      this.dialog.replaceChildren(el("h2", { text: title }), ...content, close);
      this.dialog.showModal();
    }

    help() {
      const rows = tl.KEYS.map(([keys, what]) =>
        el("tr", {}, el("th", { scope: "row", text: keys }), el("td", { text: what })));
      this.show("Keys", el("table", { class: "tl-facts" }, el("tbody", {}, ...rows)));
    }

    legend() {
      const kinds = [["useful work", "Work"], ["overhead", "Overhead"], ["bubble", "Bubbles and waits"], ["request", "Requests"], ["other container", "Other"]];
      const look = (state) => `${state.label} ${state.colour} ${state.pattern}`;
      const all = new Map(this.chart.meta.states.map((state) => [look(state), state])); // each once
      const sections = kinds.map(([kind, title]) => {
        const states = [...all.values()].filter((state) => kind.split(" ").includes(state.kind));
        if (!states.length) return null;
        return el("section", {}, el("h3", { text: title }), el("ul", { class: "tl-legend" }, ...states.map((state) => this.entry(state))));
      });
      const glyphs = "▲ param sync   ◆ mode switch   ❙❙ pause   ▶ resume   ✕ abort or error";
      this.show("Legend", ...sections.filter(Boolean), el("p", { class: "tl-quiet", text: glyphs }));
    }

    entry(state) {
      const sample = el("canvas", { width: "36", height: "24", class: "tl-sample", "aria-hidden": "true" });
      const c = sample.getContext("2d");
      c.scale(2, 2);
      c.fillStyle = this.chart.theme.fill(c, state, 2);
      c.fillRect(0, 0, 18, 12);
      return el("li", {}, sample, el("bdi", { text: state.label }));
    }
  };
})(window.rlTimeline);
