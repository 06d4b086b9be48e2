from tests.fitted import folds_fitted_once

__all__ = ["folds_fitted_once"]
