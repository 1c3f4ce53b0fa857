/** The engine's wasm, deflated and in base64. The build writes the module; it is imported only when needed. */
export declare const deflatedWasm: string;
