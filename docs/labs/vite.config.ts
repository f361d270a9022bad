import { defineConfig } from "vite";

export default defineConfig({
  build: {
    outDir: "../assets/labs",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    lib: { entry: "src/labs.ts", formats: ["es"], fileName: () => "labs.js" },
    rollupOptions: {
      output: {
        chunkFileNames: "[name].js",
        manualChunks: (id: string) => (/node_modules\/(lit|@lit)|src\/ui\/base/.test(id) ? "base" : /node_modules\/d3/.test(id) ? "d3" : undefined),
      },
    },
  },
});
