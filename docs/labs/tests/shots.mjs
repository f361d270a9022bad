// Screenshots of the built site: node tests/shots.mjs FOLDER [PAGE...]
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { browser, labs, serve } from "./site.mjs";

const [folder, ...wanted] = process.argv.slice(2);
const shown = wanted.length ? wanted : ["", ...labs.map((lab) => `labs/${lab}/`), "concepts/gdn-mla/", "reference/config/"];
mkdirSync(folder, { recursive: true });
const { origin, close } = await serve();
const chrome = await browser();
const dark = process.env.DARK === "1";
for (const [name, width, height] of [["desktop", 1280, 900], ["phone", 360, 780]]) {
  if (process.env.ONLY && process.env.ONLY !== name) continue;
  const context = await chrome.newContext({ viewport: { width, height }, colorScheme: dark ? "dark" : "light", reducedMotion: "reduce" });
  const page = await context.newPage();
  page.on("console", (m) => m.type() === "error" && console.error(m.text()));
  page.on("pageerror", (e) => console.error(String(e)));
  for (const path of shown) {
    await page.goto(`${origin}/${path}`, { waitUntil: "networkidle" });
    await page.evaluate(() => document.fonts.ready);
    const high = Math.min(2600, await page.evaluate(() => document.documentElement.scrollHeight));
    const limit = process.env.FULL ? high : Math.min(high, name === "phone" ? 1500 : 1100);
    const file = `${path.replace(/\/$/, "").replace(/\//g, "-").replace(/\?.*/, "") || "home"}-${name}.png`;
    await page.setViewportSize({ width, height: limit });
    await page.screenshot({ path: join(folder, file) });
    await page.setViewportSize({ width, height });
  }
  await context.close();
}
await chrome.close();
close();
