// A browser starts no worker from a file. Where the site is read from files, its search runs in a hidden frame instead,
// which has a worker's two ways to talk: `onmessage` and `postMessage`.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.ready = new Promise((resolve) => {
        this.frame.onload = () => {
          this.frame.contentWindow.postMessage = (data) => setTimeout(() => this.onmessage?.({ data }));
          const script = this.frame.contentDocument.createElement("script");
          script.src = new URL(url, location.href);
          script.onload = resolve;
          this.frame.contentDocument.body.append(script);
        };
      });
      document.body.append(this.frame);
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow?.onmessage({ data }));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
