// The binary answers of the server: a JSON header, then arrays that are mapped, not parsed.
window.rlTimeline = window.rlTimeline || {};

(function (tl) {
  const TYPES = {
    uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, int32: Int32Array,
    int64: BigInt64Array, float32: Float32Array, float64: Float64Array,
  };

  // Returns the header with `arrays`: name -> typed array.
  tl.unpack = function (buffer) {
    const size = new DataView(buffer).getUint32(0, true);
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
    const arrays = {};
    for (const [name, [type, at, length]] of Object.entries(header.arrays)) {
      arrays[name] = new TYPES[type](buffer, 4 + size + at, length);
    }
    header.arrays = arrays;
    return header;
  };

  tl.NULL = -2147483648; // stands for null in a column of int32
})(window.rlTimeline);
