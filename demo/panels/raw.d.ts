/** The text of a file, as demo/build.mjs imports it. */
declare module "*?raw" {
  const text: string;
  export default text;
}
