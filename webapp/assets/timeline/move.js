// Part of a chart: where its view is, and how it gets elsewhere.
window.rlTimeline = window.rlTimeline || {};

(function (tl) {
  const LEAST_SPAN = 1e-7; // seconds

  (tl.parts = tl.parts || []).push({
    clamped(from, to) {
      const whole = this.meta.duration_s;
      const span = Math.min(Math.max(to - from, LEAST_SPAN), whole * 1.04);
      const middle = (from + to) / 2;
      const beside = Math.min(span * 0.5, whole * 0.02);
      const start = Math.max(-beside, Math.min(whole + beside - span, middle - span / 2));
      return span >= whole ? { from: whole / 2 - span / 2, to: whole / 2 + span / 2 } : { from: start, to: start + span };
    },

    // Moves at once; `glide` moves smoothly.
    setView(from, to) {
      this.view = this.clamped(from, to);
      this.target = { ...this.view };
      this.wishAndDraw();
    },

    glide(from, to) {
      this.target = this.clamped(from, to);
      if (matchMedia("(prefers-reduced-motion: reduce)").matches) this.view = { ...this.target };
      this.wishAndDraw();
    },

    // One frame nearer to the target, in a scale-free way.
    approach() {
      const { view, target } = this;
      const span = target.to - target.from;
      const away = Math.abs(view.from - target.from) + Math.abs(view.to - target.to);
      if (away === 0) return false;
      if (away < span * 0.002) this.view = { ...target };
      else {
        const share = 0.34;
        this.view = { from: view.from + (target.from - view.from) * share, to: view.to + (target.to - view.to) * share };
      }
      return true;
    },

    zoom(factor, x) {
      const { from, to } = this.target;
      const at = x === null || x < this.x0 ? (from + to) / 2 : from + ((x - this.x0) / (this.width - this.x0)) * (to - from);
      this.glide(at - (at - from) * factor, at + (to - at) * factor);
    },

    zoomTo(from, to) {
      const span = Math.max(to - from, LEAST_SPAN);
      this.glide(from - span * 0.08, to + span * 0.08);
    },

    pan(seconds) {
      this.setView(this.view.from + seconds, this.view.to + seconds);
    },

    panBy(share) {
      const shift = (this.target.to - this.target.from) * share;
      this.glide(this.target.from + shift, this.target.to + shift);
    },

    fit() {
      const { sel } = this.state;
      if (sel) this.zoomTo(sel.from, sel.to);
      else this.glide(0, this.meta.duration_s);
    },

    scroll(pixels) {
      this.scrollTo(this.state.y + pixels);
      this.wishAndDraw();
    },

    scrollTo(y) {
      const most = Math.max(0, this.layout.height - (this.lanesBottom - this.lanesTop));
      this.state.y = this.height > 1 ? Math.max(0, Math.min(most, y)) : y;
    },

    scrollToLane(number) {
      const row = this.layout.rows.find((r) => r.lane && r.lane.number === number);
      if (!row) return;
      const high = this.lanesBottom - this.lanesTop;
      if (row.y < this.state.y || row.y + row.height > this.state.y + high) this.scrollTo(row.y - high / 3);
    },
  });
})(window.rlTimeline);
