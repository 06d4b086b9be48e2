export default ({data, parentElement}) => {
  const button = parentElement.querySelector("button")
  button.onclick = async () => {
    // Browsers let pages of other machines write to the clipboard under https only.
    if (!navigator.clipboard) { prompt("Copy this link:", data.link); return }
    await navigator.clipboard.writeText(data.link)
    button.textContent = data.done
    setTimeout(() => { button.textContent = "Copy link" }, 2000)
  }
}
