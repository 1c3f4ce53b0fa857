/** The least that a list from a worker takes: its rows cloned as objects, or their bytes as one transferred buffer. */

import { rowOf, SIZES } from "./rows.js";

const rows = new Map(
  SIZES.map((size) => [size as number, Array.from({ length: size }, (_, i) => rowOf(i))]),
);
const bytes = new Map(
  [...rows].map(([size, list]) => [size, new TextEncoder().encode(JSON.stringify(list))]),
);

globalThis.onmessage = ({ data: { kind, size } }: MessageEvent<{ kind: string; size: number }>) => {
  const target = globalThis as unknown as Worker;
  if (kind === "objects") target.postMessage(rows.get(size));
  else {
    const copy = bytes.get(size)!.slice();
    target.postMessage(copy, [copy.buffer]);
  }
};
