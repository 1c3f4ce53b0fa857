/** As `wasm-inline.ts`, in the bundles for pages without a bundler: the wasm is a file, which takes half the bytes. */

import { VarveError } from "../errors/index.js";

const url = new URL("../varve.wasm", import.meta.url);
const request = () => fetch(url);

/** Requested at once, so that it arrives while the worker starts. */
let first: Promise<Response> | undefined = request();
// Who asks for it learns of a failure.
first.catch(() => {});

/** The response with the wasm. @throws VarveError `VARVE_WASM` if there is none */
export async function fetchedWasm(): Promise<Response> {
  const response = first ?? request();
  first = undefined;
  try {
    return await response;
  } catch (cause) {
    // The platform's error names neither the file nor the reason.
    throw new VarveError(
      "VARVE_WASM",
      `The wasm of varve could not be fetched from ${url}: there is no connection, its server does not allow it to this ` +
        "origin (access-control-allow-origin), or connect-src of a content security policy lacks it.",
      { cause },
    );
  }
}
