"""The page's widgets, and what they remember: decisions are the library's, drawings `report`'s."""
