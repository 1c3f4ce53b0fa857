import init, { product_drop } from "./pkg/web_drop.js";

try {
  await init();
  const start = performance.now();
  const { sold, left } = await product_drop();
  postMessage({ sold, left, ms: performance.now() - start });
} catch (error) {
  postMessage({ error: String(error) });
}
