import { defineConfig } from "vite";

export default defineConfig({
  build: {
    outDir: "../assets/labs",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    lib: { entry: "src/labs.ts", formats: ["es"], fileName: () => "labs.js" },
    rollupOptions: { output: { chunkFileNames: "[name].js" } },
  },
});
