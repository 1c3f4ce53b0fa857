/** As `wasm-inline.ts`, in the bundles for pages without a bundler: the wasm is a file, which takes half the bytes. */

const request = () => fetch(new URL("../varve.wasm", import.meta.url));

/** Requested at once, so that it arrives while the worker starts. */
let first: Promise<Response> | undefined = request();
// Who asks for it learns of a failure.
first.catch(() => {});

/** The response with the wasm. */
export function fetchedWasm(): Promise<Response> {
  const response = first ?? request();
  first = undefined;
  return response;
}
