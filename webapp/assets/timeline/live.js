// Part of a chart: following a trace that grows.
window.rlTimeline = window.rlTimeline || {};

(function (tl) {
  const LIVE_MS = 2000;

  (tl.parts = tl.parts || []).push({
    followSoon() {
      this.timer = setTimeout(() => this.follow(), LIVE_MS);
    },

    async follow() {
      if (this.closed) return;
      try {
        const meta = await tl.ask("meta", { run: this.run });
        if (!meta.indexing && meta.stamp !== this.meta.stamp) this.grow(meta);
        else if (!meta.indexing) this.meta.live = meta.live;
      } catch (error) {
        this.say(error.message);
      }
      if (!this.closed && this.meta.live) this.followSoon();
    },

    grow(meta) {
      const before = this.meta.duration_s;
      const { from, to } = this.target;
      const span = to - from;
      const seesAll = from <= 0 && to >= before;
      const seesEnd = to >= before - span * 0.001;
      this.setMeta(meta);
      if (seesAll) this.setView(0, meta.duration_s);
      else if (seesEnd && !this.press) this.setView(from + meta.duration_s - before, to + meta.duration_s - before);
      else this.wishAndDraw();
    },
  });
})(window.rlTimeline);
