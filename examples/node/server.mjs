// Counts the visits of each path. Try: npm start, open http://localhost:8080/any/path a few times,
// kill the process with kill -9, and start it again.

import { createServer } from "node:http";
import { open } from "varve";
import { str, struct, timestamp, u32 } from "varve/struct";

const Visits = struct("Visits", { count: u32, last: timestamp, agent: str });

const db = await open("visits"); // ./visits.varve
const visits = db.collection("visits", Visits, { indexes: { byCount: "count" } });

const server = createServer((request, response) => {
  const path = request.url ?? "/";
  const agent = request.headers["user-agent"] ?? "unknown";
  const count = (visits.get(path)?.count ?? 0) + 1;
  visits.set(path, { count, last: new Date(), agent });
  // The visit is in the file before the answer leaves: a killed process has not lost it.
  db.commit();

  const most = [...visits.index.byCount.entries({ reverse: true, limit: 5 })];
  response.setHeader("content-type", "text/plain; charset=utf-8");
  response.end(
    `Visit ${count} of ${path}\n\nMost visited:\n${most
      .map(([key, visit]) => `${String(visit.count).padStart(6)}  ${key}\n`)
      .join("")}`,
  );
});

const port = Number(process.env.PORT ?? 8080);
server.listen(port, () => {
  console.log(`http://localhost:${server.address().port}`);
});

process.on("SIGINT", async () => {
  server.close();
  await db.close();
});
