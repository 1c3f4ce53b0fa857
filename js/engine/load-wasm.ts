/// <reference path="../util/dom-types.ts" preserve="true" />
/** Loads the wasm module of the engine. It is compiled once per realm and shared by all databases of the realm. */

import { badArgument, isNoMemory, VarveError } from "../errors/index.js";
import { moduleAt } from "../util/modules.js";

/**
 * What the option `wasm` of `open` takes in place of the package's own wasm: a compiled module, its bytes, or
 * a response. A promise of one works, too.
 */
export type WasmSource = WebAssembly.Module | ArrayBufferView | ArrayBuffer | Response;

let compiled: Promise<WebAssembly.Module> | undefined;

/**
 * The engine's compiled module. Without a source it is the package's own, which is inlined, so that
 * there is no second file to serve, fetch or bundle.
 *
 * @throws TypeError if the source has another type
 * @throws VarveError `VARVE_WASM` if it does not compile: no wasm, or none allowed here
 */
export async function loadModule(
  source?: WasmSource | PromiseLike<WasmSource>,
): Promise<WebAssembly.Module> {
  if (source !== undefined) return moduleFrom(source);
  compiled ??= inlined();
  try {
    return await compiled;
  } catch (error) {
    // Let the next open try again, because loading a chunk may fail only temporarily.
    compiled = undefined;
    throw error;
  }
}

async function inlined(): Promise<WebAssembly.Module> {
  const { deflatedWasm, fetchedWasm } = await moduleAt<typeof import("./wasm-inline.js")>(
    "engine/wasm-inline",
    "VARVE_WASM",
  );
  if (fetchedWasm !== undefined) return moduleFrom(fetchedWasm());
  const deflated = fromBase64(deflatedWasm);
  const { process } = globalThis as { process?: { getBuiltinModule?(name: string): Zlib } };
  const zlib = process?.getBuiltinModule?.("zlib");
  // Where there is zlib, streams take longer to load than this takes.
  if (zlib !== undefined) return compile(() => WebAssembly.compile(zlib.inflateSync(deflated)));
  return compile(async () => WebAssembly.compile(await inflate(deflated)));
}

/** Without a `Response`, which some realms lack or cannot make, and without a `Blob`, which takes 2 ms at a start. */
async function inflate(deflated: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
  const { readable, writable } = new DecompressionStream("deflate");
  const writer = writable.getWriter();
  // What fails here fails at the reader, too.
  for (const written of [writer.write(deflated), writer.close()]) written.catch(() => {});
  const reader = readable.getReader();
  const chunks: Uint8Array[] = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    chunks.push(value);
    size += value.length;
  }
  const bytes = new Uint8Array(size);
  size = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, size);
    size += chunk.length;
  }
  return bytes;
}

interface Zlib {
  inflateSync(bytes: Uint8Array): Uint8Array<ArrayBuffer>;
}

/** The compiled module of a source, which may be a compiled one. Throws as `loadModule`. */
export async function moduleFrom(
  given: WasmSource | PromiseLike<WasmSource>,
): Promise<WebAssembly.Module> {
  const source = await given;
  // By tag, so that objects of other realms are recognized too.
  const tag = Object.prototype.toString.call(source).slice(8, -1);
  if (tag === "WebAssembly.Module") return source as WebAssembly.Module;
  if (ArrayBuffer.isView(source) || tag === "ArrayBuffer" || tag === "SharedArrayBuffer") {
    return compile(() => WebAssembly.compile(source as BufferSource));
  }
  if (tag === "Response") return fromResponse(source as Response);
  throw badArgument(
    "The option wasm must be a WebAssembly.Module, its bytes, a Response, or a promise of one.",
    source,
  );
}

async function fromResponse(response: Response): Promise<WebAssembly.Module> {
  const missing = () => {
    const { url, status, headers } = response;
    return new VarveError(
      "VARVE_WASM",
      `The wasm of varve could not be fetched from ${url}: status ${status}, type ${headers.get("content-type")}.`,
    );
  };
  if (!response.ok) throw missing();
  if (isStreamable(response)) return compile(() => WebAssembly.compileStreaming(response));
  const bytes = await response.arrayBuffer();
  // Servers of applications answer with their page where there is no file: text, that begins with "<".
  if (new Uint8Array(bytes)[0] === 0x3c) throw missing();
  return compile(() => WebAssembly.compile(bytes));
}

/** `compileStreaming` compiles while the bytes arrive, but only what the server declares as wasm. */
function isStreamable({ headers }: Response): boolean {
  return (
    typeof globalThis.WebAssembly?.compileStreaming === "function" &&
    headers.get("content-type")?.toLowerCase() === "application/wasm"
  );
}

async function compile(start: () => Promise<WebAssembly.Module>): Promise<WebAssembly.Module> {
  if (typeof WebAssembly === "undefined") {
    throw new VarveError(
      "VARVE_WASM",
      "This runtime has no WebAssembly (some browsers switch it off in their strictest mode). " +
        "varve cannot run here.",
    );
  }
  try {
    return await start();
  } catch (cause) {
    // The caller reports this as `OutOfMemoryError`.
    if (isNoMemory(cause)) throw cause;
    throw new VarveError(
      "VARVE_WASM",
      "The wasm of varve does not compile here. With a content security policy, script-src needs " +
        "'wasm-unsafe-eval'; a runtime older than Chrome 102, Firefox 113, Safari 16.4 or Node 20.16 " +
        "lacks SIMD or DecompressionStream; where code may not be compiled at run time, give open() a compiled module " +
        "as its option wasm.",
      { cause },
    );
  }
}

/** Decoding by `atob` takes 3 ms when a page starts, but Node 20 and browsers before 2025 have nothing else. */
function fromBase64(base64: string): Uint8Array<ArrayBuffer> {
  const { fromBase64: native } = Uint8Array as {
    fromBase64?(text: string): Uint8Array<ArrayBuffer>;
  };
  if (native !== undefined) return native.call(Uint8Array, base64);
  const binary = atob(base64);
  const bytes = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index += 1) bytes[index] = binary.charCodeAt(index);
  return bytes;
}
