// A server for the built site and a browser to look at it with.
import { createReadStream, existsSync, readdirSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join, normalize, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

export const site = fileURLToPath(new URL("../../../build/site", import.meta.url));

const types = {
  ".css": "text/css", ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".json": "application/json",
  ".png": "image/png", ".svg": "image/svg+xml", ".woff2": "font/woff2", ".xml": "text/xml",
};

export function fail(message) {
  console.error(`error: ${message}`);
  process.exit(1);
}

export function serve() {
  if (!existsSync(join(site, "index.html"))) fail("build/site is not there. Run `make docs` first.");
  const server = createServer((request, response) => {
    let path = join(site, normalize(decodeURIComponent(new URL(request.url, "http://site").pathname)));
    if (existsSync(path) && statSync(path).isDirectory()) path = join(path, "index.html");
    if (!path.startsWith(site) || !existsSync(path)) {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(200, { "content-type": types[extname(path)] ?? "application/octet-stream" });
    createReadStream(path).pipe(response);
  });
  return new Promise((resolve) => {
    server.listen(0, "127.0.0.1", () => resolve({ origin: `http://127.0.0.1:${server.address().port}`, close: () => server.close() }));
  });
}

export async function browser() {
  const places = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
  const executablePath = places.find((place) => place && existsSync(place));
  if (!executablePath) {
    fail("no Chromium found. Install one (Debian: apt-get install chromium), or name it: CHROMIUM=/path/to/chromium make docs-test");
  }
  return chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--force-color-profile=srgb"] });
}

/** Addresses of all pages, relative to the site's root; pages that show a source file apart. */
export function pages() {
  const found = [];
  const walk = (folder) => {
    for (const name of readdirSync(folder)) {
      const path = join(folder, name);
      if (statSync(path).isDirectory()) walk(path);
      else if (name === "index.html") found.push(relative(site, folder).split(sep).join("/"));
    }
  };
  walk(site);
  const all = found.map((path) => (path ? `${path}/` : "")).sort();
  return { pages: all.filter((path) => !path.startsWith("source/")), sources: all.filter((path) => path.startsWith("source/")) };
}

export const labs = ["gdn", "moe", "cache", "mtp", "step", "planner"];

/** Pages and sizes whose pictures are kept. */
export const shown = ["", ...labs.map((lab) => `labs/${lab}/`), "concepts/gdn-mla/", "reference/config/"];
export const sizes = [["desktop", 1280, 1000], ["phone", 360, 1500]];

export const pictureName = (path, name) => `${path.replace(/\/$/, "").replace(/\//g, "-") || "home"}-${name}.jpg`;

/** A settled page as JPEG, as large as the window. */
export async function picture(page, address) {
  await page.goto(address, { waitUntil: "networkidle" });
  await page.evaluate(() => document.fonts.ready);
  await page.waitForTimeout(150);
  return page.screenshot({ type: "jpeg", quality: 55 });
}

/** Mean difference of two pictures, each drawn 160 pixels wide by a page. */
export function difference(page, kept, now, type) {
  return page.evaluate(compare, [kept.toString("base64"), now.toString("base64"), type]);
}

async function compare([kept, now, type]) {
  const draw = async (data) => {
    const image = await createImageBitmap(new Blob([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], { type }));
    const canvas = new OffscreenCanvas(160, Math.round((160 * image.height) / image.width));
    const brush = canvas.getContext("2d");
    brush.drawImage(image, 0, 0, canvas.width, canvas.height);
    return brush.getImageData(0, 0, canvas.width, canvas.height);
  };
  const [a, b] = [await draw(kept), await draw(now)];
  if (Math.abs(a.height - b.height) > 2) return 1;
  const n = Math.min(a.data.length, b.data.length);
  let sum = 0;
  for (let i = 0; i < n; i++) sum += Math.abs(a.data[i] - b.data[i]);
  return sum / n / 255;
}
