import { connect } from "varve";
import { equal, rejects, suite, test } from "../harness.js";

suite("connect on a server", () => {
  test("returns at once, and tells whoever calls that there is no worker", async () => {
    const client = connect("shop");
    equal(client.status.state, "idle");
    await rejects(client.get("yeezy"), {
      code: "VARVE_STORAGE_UNAVAILABLE",
      message: /On a server use open\(\)/,
    });
    await rejects(client.ready, { code: "VARVE_STORAGE_UNAVAILABLE" });
    await client.close();
  });

  test("makes no worker before something is asked for", async () => {
    let made = 0;
    const client = connect("shop", {
      worker() {
        made += 1;
        throw new Error("no Worker here");
      },
    });
    await new Promise((resolve) => setTimeout(resolve, 5));
    equal(made, 0);
    await rejects(client.get("yeezy"), { code: "VARVE_STORAGE_UNAVAILABLE", cause: true });
    equal(made, 1);
    await client.close();
  });
});
