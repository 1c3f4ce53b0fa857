/** The engine's wasm, deflated and in base64. The build writes the module; it is imported only when needed. */
export declare const deflatedWasm: string;

/** In the bundles for pages without a bundler, instead of that: the response to a request for the wasm. */
export declare const fetchedWasm: undefined | (() => Promise<Response>);
