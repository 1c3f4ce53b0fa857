/** The bundler puts the file beside the script and gives its address. */
declare module "@sqlite.org/sqlite-wasm/sqlite3.wasm" {
  const url: string;
  export default url;
}
