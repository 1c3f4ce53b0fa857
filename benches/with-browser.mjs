// Browsers of the benchmarks, each with a new profile on disk.

import { launch, withProfile } from "../tests/browsers.mjs";

/** Starts a browser and calls `use(browser, version)`. */
export function withBrowser(browserName, use) {
  return withProfile(browserName, async (profile) => {
    const browser = await launch(browserName, profile);
    try {
      return await use(browser, await browser.version());
    } finally {
      await browser.close();
    }
  });
}
