// As much of MessagePack as a node writes. Maps become objects, binary data a Uint8Array.

const text = new TextDecoder();

/** Decodes one value. Throws a RangeError if the bytes end too early, or are of another kind. */
export function decode(bytes) {
  return new Reader(bytes).value();
}

class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = 0;
  }
  value() {
    const kind = this.uint(1);
    if (kind < 0x80) return kind;
    if (kind < 0x90) return this.map(kind & 0x0f);
    if (kind < 0xa0) return this.array(kind & 0x0f);
    if (kind < 0xc0) return text.decode(this.take(kind & 0x1f));
    if (kind >= 0xe0) return kind - 0x100;
    switch (kind) {
      case 0xc0: return null;
      case 0xc2: return false;
      case 0xc3: return true;
      case 0xc4: case 0xc5: case 0xc6: return this.take(this.uint(1 << (kind - 0xc4)));
      case 0xca: return this.view.getFloat32(this.skip(4));
      case 0xcb: return this.view.getFloat64(this.skip(8));
      case 0xcc: case 0xcd: case 0xce: case 0xcf: return this.uint(1 << (kind - 0xcc));
      case 0xd0: return this.view.getInt8(this.skip(1));
      case 0xd1: return this.view.getInt16(this.skip(2));
      case 0xd2: return this.view.getInt32(this.skip(4));
      case 0xd3: return Number(this.view.getBigInt64(this.skip(8)));
      case 0xd9: case 0xda: case 0xdb: return text.decode(this.take(this.uint(1 << (kind - 0xd9))));
      case 0xdc: case 0xdd: return this.array(this.uint(2 << (kind - 0xdc)));
      case 0xde: case 0xdf: return this.map(this.uint(2 << (kind - 0xde)));
      default: throw new RangeError(`a value of kind 0x${kind.toString(16)} can't be decoded`);
    }
  }
  uint(size) {
    const at = this.skip(size);
    if (size === 1) return this.view.getUint8(at);
    if (size === 2) return this.view.getUint16(at);
    if (size === 4) return this.view.getUint32(at);
    return Number(this.view.getBigUint64(at));
  }
  skip(size) {
    const at = this.at;
    if (at + size > this.bytes.length) throw new RangeError("a value ends too early");
    this.at += size;
    return at;
  }
  take(size) {
    const at = this.skip(size);
    return this.bytes.subarray(at, at + size);
  }
  array(count) {
    const found = [];
    while (found.length < count) found.push(this.value());
    return found;
  }
  map(count) {
    const found = Object.create(null);
    for (let index = 0; index < count; index++) {
      const name = this.value();
      found[name] = this.value();
    }
    return found;
  }
}
