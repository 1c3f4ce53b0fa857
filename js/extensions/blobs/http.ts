/** Answers an HTTP request for a stored blob: RFC 9110, sections 13 and 14 (conditions and ranges). */

/** What an answer needs to know of a blob. */
export interface Served {
  readonly size: number;
  readonly type: string;
  /** Differs for each content. */
  readonly version: string;
  readonly modified: Date;
  stream(range: { start: number; end: number }): ReadableStream<Uint8Array>;
}

/** What an answer needs to know of a request: a `Request` of any platform has it. */
export interface Asked {
  readonly method: string;
  readonly headers: { get(name: string): string | null };
}

/** The bytes that a header asks for; `undefined` for all of them, `null` if there are none of those. */
type Wanted = { readonly start: number; readonly end: number } | undefined | null;

/** 200, 206 for a range, 304 for what the browser has already, 405, 416 for a range outside. */
export function responseTo(blob: Served, request: Asked | undefined): Response {
  const method = request?.method ?? "GET";
  const tag = `"${blob.version}"`;
  const headers = new Headers({
    "accept-ranges": "bytes",
    "content-type": blob.type || "application/octet-stream",
    etag: tag,
    "last-modified": blob.modified.toUTCString(),
    // The type is the program's own word, and no browser should guess another.
    "x-content-type-options": "nosniff",
  });
  if (method !== "GET" && method !== "HEAD") {
    return new Response(null, { status: 405, headers: { allow: "GET, HEAD" } });
  }
  const asked = request?.headers;
  if (isKnown(asked, tag, blob.modified)) return new Response(null, { status: 304, headers });
  const condition = asked?.get("if-range");
  const isSame =
    condition === null ||
    condition === undefined ||
    condition === tag ||
    condition === headers.get("last-modified");
  const range = method === "GET" && isSame ? wanted(asked?.get("range"), blob.size) : undefined;
  if (range === null) {
    headers.set("content-range", `bytes */${blob.size}`);
    headers.delete("content-type");
    return new Response(null, { status: 416, headers });
  }
  const { start, end } = range ?? { start: 0, end: blob.size };
  headers.set("content-length", String(end - start));
  if (range) headers.set("content-range", `bytes ${start}-${end - 1}/${blob.size}`);
  const body = method === "HEAD" ? null : blob.stream({ start, end });
  return new Response(body, { status: range ? 206 : 200, headers });
}

function isKnown(asked: Asked["headers"] | undefined, tag: string, modified: Date): boolean {
  const tags = asked?.get("if-none-match");
  if (tags)
    return (
      tags.trim() === "*" || tags.split(",").some((one) => one.trim().replace(/^W\//, "") === tag)
    );
  const since = Date.parse(asked?.get("if-modified-since") ?? "");
  return Math.trunc(modified.getTime() / 1000) * 1000 <= since;
}

/** One range of bytes. Several at once, and what is no range of bytes, may be answered by everything. */
function wanted(header: string | null | undefined, size: number): Wanted {
  const match = /^bytes\s*=\s*(\d*)\s*-\s*(\d*)\s*$/i.exec(header ?? "");
  if (match === null) return undefined;
  const [, first, last] = match as unknown as [string, string, string];
  if (first === "") {
    if (last === "") return undefined;
    const length = Math.min(Number(last), size);
    return length === 0 ? null : { start: size - length, end: size };
  }
  const start = Number(first);
  const end = last === "" ? size : Math.min(Number(last) + 1, size);
  if (last !== "" && Number(last) < start) return undefined;
  return start < size ? { start, end } : null;
}
