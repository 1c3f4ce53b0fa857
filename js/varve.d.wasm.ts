/** A bundler that loads wasm gives the compiled module; others give a URL. See its manual. */
declare const wasm: WebAssembly.Module;
export default wasm;
