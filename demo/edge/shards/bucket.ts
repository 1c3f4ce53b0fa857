/**
 * A bucket for workerd alone, which has the R2 binding but nothing behind it: this Worker answers the requests of the
 * binding's `get` and `put` from a folder. On Cloudflare, and in wrangler, R2 is there instead.
 */

interface Env {
  /** The folder: a service of workerd that answers GET and PUT. */
  readonly FOLDER: { fetch(request: Request): Promise<Response> };
}

/** The code of R2 for an object that is not there, for which `get` gives null. */
const NO_SUCH_KEY = 10007;

/** The metadata of an object, then its bytes: what the binding reads. */
function described(name: string, bytes: ArrayBuffer, body: ArrayBuffer): Response {
  const metadata = new TextEncoder().encode(
    JSON.stringify({
      name,
      version: "1",
      size: bytes.byteLength,
      etag: "1",
      uploaded: Date.now(),
      httpFields: {},
      customFields: [],
      checksums: {},
    }),
  );
  return new Response(new Blob([metadata, body]), {
    headers: { "cf-r2-metadata-size": String(metadata.length) },
  });
}

export default {
  async fetch(request: Request, { FOLDER }: Env): Promise<Response> {
    const size = Number(request.headers.get("cf-r2-metadata-size") ?? 0);
    const body = await request.arrayBuffer();
    const { method, object } = JSON.parse(
      request.headers.get("cf-r2-request") ?? new TextDecoder().decode(body.slice(0, size)),
    ) as { method: string; object: string };
    const url = `http://folder/${object.split("/").map(encodeURIComponent).join("/")}`;
    if (method === "put") {
      const bytes = body.slice(size);
      const response = await FOLDER.fetch(new Request(url, { method: "PUT", body: bytes }));
      if (response.ok) return described(object, bytes, new ArrayBuffer(0));
      throw new Error(`${object} was not stored: ${response.status}.`);
    }
    const response = method === "get" ? await FOLDER.fetch(new Request(url)) : undefined;
    if (response?.ok) {
      const bytes = await response.arrayBuffer();
      return described(object, bytes, bytes);
    }
    const error = { version: 1, v4code: NO_SUCH_KEY, message: `There is no ${object}.` };
    return new Response(null, {
      status: 404,
      headers: { "cf-r2-error": JSON.stringify(error) },
    });
  },
};
