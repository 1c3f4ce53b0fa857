/** The engine's wasm in base64. The build writes the module; it is imported only when needed. */
export declare const wasmBase64: string;
