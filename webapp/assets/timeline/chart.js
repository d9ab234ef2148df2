// The timeline of one run: its state, its regions, and when it is drawn.
window.rlTimeline = window.rlTimeline || {};

(function (tl) {
  const NAMES = 184; // pixels for names, left of the plot
  const PANEL = 40;
  const BESIDE = 250; // pixels of lanes above and below the visible ones that are asked for, too
  const BUBBLES_OF = { trainer: "trainer", hybrid: "trainer", colocated: "trainer", rollouter: "rollouter", standalone: "rollouter" };

  tl.Chart = class {
    constructor(root, run, given, meta) {
      Object.assign(this, { root, run, meta });
      this.state = tl.readState(given);
      this.theme = new tl.Theme();
      this.x0 = NAMES;
      this.ratio = 1;
      this.width = this.height = 1;
      this.visible = [];
      this.frames = [];
      this.view = { from: 0, to: meta.duration_s };
      this.data = new tl.Data(run, () => this.answered(), (error) => this.say(error.message));
      this.build();
      this.setMeta(meta);
      this.setFind(this.state.find);
      const { from, to } = this.state;
      if (from !== null || to !== null) this.setView(from ?? 0, to ?? meta.duration_s);
      this.target = { ...this.view };
      this.observe();
      this.resize();
      if (this.state.pick) this.restorePick();
      if (meta.live) this.followSoon();
      if (meta.remark) this.say(meta.remark);
    }

    build() {
      this.canvas = tl.el("canvas", {
        tabindex: "0", role: "application", class: "tl-canvas", "aria-describedby": "tl-about",
        "aria-label": `Timeline of ${this.meta.name}. Arrow keys move, question mark lists all keys, T shows a table.`,
      });
      this.context = this.canvas.getContext("2d", { alpha: false });
      this.over = tl.el("canvas", { class: "tl-over", "aria-hidden": "true" });
      this.tip = tl.el("div", { class: "tl-tip", "aria-hidden": "true", hidden: "" });
      this.detailPanel = tl.el("aside", { class: "tl-detail", "aria-label": "Details", "aria-live": "polite", tabindex: "0", hidden: "" });
      this.bar = new tl.Bar(this);
      this.table = new tl.Table(this);
      this.box = tl.el("div", { class: "tl-chart" }, this.canvas, this.over, this.tip, this.bar.status);
      this.root.replaceChildren(
        this.bar.element, this.bar.states(),
        tl.el("div", { class: "tl-body" }, this.box, this.detailPanel),
        this.table.element,
      );
      tl.listen(this);
    }

    observe() {
      this.sizes = new ResizeObserver(() => this.resize());
      this.sizes.observe(this.box);
      this.schemes = new MutationObserver(() => {
        this.theme.read();
        this.redraw();
      });
      this.schemes.observe(document.documentElement, { attributes: true, attributeFilter: ["data-mantine-color-scheme"] });
    }

    close() {
      this.closed = this.data.closed = true;
      clearTimeout(this.timer);
      this.sizes.disconnect();
      this.schemes.disconnect();
    }

    setMeta(meta) {
      this.meta = meta;
      this.groups = tl.groupsOf(meta);
      this.hasRequests = new Set(meta.lanes.filter((l) => l.role === "requests" && l.rows).map((l) => l.of));
      this.bubbleLanes = new Map(meta.lanes.flatMap((l, i) => (l.role === "bubbles" ? [[l.id.slice(8), i]] : [])));
      const colour = (name, other) => (meta.states.find((s) => s.name === name) || {}).colour || other;
      this.generate = colour("generate", "#009e73");
      this.validation = colour("validate", "#b0649a");
      this.areaScales = new Map();
      this.arrange();
    }

    arrange() {
      this.layout = tl.rowsOf(this.meta, this.groups, this.state);
      this.place();
      this.wishAndDraw();
    }

    // -- geometry ------------------------------------------------------------------------

    resize() {
      if (this.closed) return;
      const box = this.box.getBoundingClientRect();
      if (!box.width || !box.height) return;
      this.ratio = window.devicePixelRatio || 1;
      this.width = Math.floor(box.width);
      this.height = Math.floor(box.height);
      for (const canvas of [this.canvas, this.over]) {
        canvas.width = Math.round(this.width * this.ratio);
        canvas.height = Math.round(this.height * this.ratio);
        canvas.style.width = `${this.width}px`;
        canvas.style.height = `${this.height}px`;
      }
      this.place();
      this.wishAndDraw(true);
    }

    place() {
      const panels = this.state.panels ? this.meta.panels : [];
      const each = Math.min(PANEL, Math.max(28, (this.height * 0.33) / Math.max(1, panels.length)));
      const bottom = this.height;
      this.regions = {
        minimap: { top: 4, height: 28 },
        ruler: { top: 34, height: 20 },
        versions: { top: 54, height: 15 },
        steps: { top: 69, height: 15 },
        panels: { top: bottom - each * panels.length, each, panels },
        bottom,
      };
      this.lanesTop = 86;
      this.lanesBottom = this.regions.panels.top;
      this.scrollTo(this.state.y);
    }

    get scale() {
      return (this.width - this.x0) / (this.view.to - this.view.from);
    }

    x(t) {
      return this.x0 + (t - this.view.from) * this.scale;
    }

    time(x) {
      return this.view.from + (x - this.x0) / this.scale;
    }

    rowTop(row) {
      return this.lanesTop + row.y - this.state.y;
    }

    fill(context, state) {
      return this.theme.fill(context, state, this.ratio);
    }

    bubbleLaneOf(lane) {
      const owner = BUBBLES_OF[lane.group];
      return owner !== undefined && this.bubbleLanes.has(owner) ? this.bubbleLanes.get(owner) : null;
    }

    areaMost(number, values) {
      let most = this.areaScales.get(number) || 1e-9;
      for (const value of values) if (value > most) most = value;
      this.areaScales.set(number, most);
      return most;
    }

    panelAnswer() {
      return this.data.answers.find((a) => a.panels && a.from_s < this.view.to && a.to_s > this.view.from);
    }

    // -- asking and drawing --------------------------------------------------------------

    laneNumbers(all = false) {
      const high = this.lanesBottom - this.lanesTop;
      const rows = all ? this.layout.rows : tl.visibleRows(this.layout, this.state.y - BESIDE, this.state.y + high + BESIDE);
      const shown = rows.flatMap((row) => (row.lane ? [row.lane.number] : row.lanes && all ? row.lanes.map((l) => l.number) : []));
      if (all) shown.push(...this.layout.rows.flatMap((r) => (r.mode === "shut" ? r.group.lanes.filter((l) => l.role !== "requests").map((l) => l.number) : [])));
      return [...new Set([...shown, ...this.bubbleLanes.values()])];
    }

    wish() {
      const high = this.lanesBottom - this.lanesTop;
      const near = tl.visibleRows(this.layout, this.state.y - BESIDE, this.state.y + high + BESIDE);
      const dense = near.flatMap((row) => (row.type === "strip" ? row.lanes.map((lane) => lane.number) : []));
      const groups = this.layout.rows.filter((row) => row.type === "group" && row.mode === "shut");
      return {
        ...this.target,
        duration: this.meta.duration_s,
        stamp: this.meta.stamp,
        width: Math.max(50, this.width - this.x0),
        lanes: this.laneNumbers(),
        dense,
        groups: groups.map((row) => row.group.id),
        gauges: this.state.panels,
      };
    }

    wishAndDraw(now = false) {
      if (this.height <= 1) return;
      this.data.need(this.wish());
      if (now) this.draw();
      else this.redraw();
      this.settle();
    }

    answered() {
      if (!this.readyAt) {
        this.readyAt = performance.now();
        this.root.dataset.ready = "1";
      }
      this.redraw();
    }

    redraw() {
      if (this.pending || this.closed) return;
      this.pending = requestAnimationFrame((at) => {
        this.pending = null;
        this.frames.push({ at, took: this.draw() });
        if (this.frames.length > 600) this.frames.shift();
      });
    }

    draw() {
      const began = performance.now();
      const moved = this.approach();
      const { context: c, theme } = this;
      c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
      c.fillStyle = theme.surface;
      c.fillRect(0, 0, this.width, this.height);
      const high = this.lanesBottom - this.lanesTop;
      this.visible = tl.visibleRows(this.layout, this.state.y, this.state.y + high);
      tl.drawMinimap(this, c);
      tl.drawRuler(this, c);
      tl.drawLandmarks(this, c);
      this.clipped(this.x0, this.lanesTop, this.width, this.lanesBottom, () => {
        tl.drawLanes(this, c);
      });
      this.clipped(0, this.lanesTop, this.width, this.lanesBottom, () => {
        c.fillStyle = theme.surface;
        c.fillRect(0, this.lanesTop, this.x0, high);
        for (const row of this.visible) {
          if (row.type !== "group") continue;
          c.fillStyle = theme.raised;
          c.fillRect(0, this.rowTop(row), this.x0, row.height - 1);
        }
      });
      this.clipped(this.x0, 0, this.width, this.height, () => tl.drawBands(this, c));
      if (this.state.panels) tl.drawPanels(this, c);
      this.clipped(0, this.lanesTop, this.width, this.lanesBottom, () => {
        tl.drawNames(this, c);
        tl.drawBandNames(this, c);
      });
      this.drawScrollbar(c, high);
      this.drawOver();
      if (moved) this.redraw();
      return performance.now() - began;
    }

    // What follows the pointer has a canvas of its own: the lanes need not be drawn for it.
    drawOver() {
      const c = this.over.getContext("2d");
      c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
      c.clearRect(0, 0, this.width, this.height);
      tl.drawCrosshair(this, c);
      if (this.state.panels) tl.drawPanelValues(this, c);
    }

    repoint() {
      if (this.pointing || this.closed) return;
      this.pointing = requestAnimationFrame(() => {
        this.pointing = null;
        this.drawOver();
      });
    }

    clipped(left, top, right, bottom, draw) {
      const { context: c } = this;
      c.save();
      c.beginPath();
      c.rect(left, top, right - left, bottom - top);
      c.clip();
      draw();
      c.restore();
    }

    drawScrollbar(c, high) {
      const { layout } = this;
      if (layout.height <= high) return;
      const tall = Math.max(24, (high * high) / layout.height);
      const top = this.lanesTop + (this.state.y / (layout.height - high)) * (high - tall);
      c.fillStyle = this.theme.quiet;
      c.globalAlpha = 0.45;
      c.beginPath();
      c.roundRect(this.width - 6, top + 2, 4, tall - 4, 2);
      c.fill();
      c.globalAlpha = 1;
    }

    // Some time after the last movement: the URL, the table and the link for the slice.
    settle() {
      clearTimeout(this.settling);
      this.settling = setTimeout(() => {
        if (this.closed || !this.root.isConnected) return;
        tl.writeState(this.state, this.target, this.meta.duration_s);
        this.bar.update();
        this.table.update();
      }, 180);
    }

    // A short message, which goes away by itself.
    say(text) {
      this.bar.status.textContent = text;
      clearTimeout(this.quieting);
      this.quieting = setTimeout(() => {
        this.bar.status.textContent = "";
      }, 6000);
    }
  };
})(window.rlTimeline);
